"""What training code opens: versions, their shards and caches."""
