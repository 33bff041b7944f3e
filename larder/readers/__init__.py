"""What training code opens: versions, with their shards and caches."""
