"""Versions opened by training code, with their shards and caches."""
