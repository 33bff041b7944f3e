"""Manifests: schemas, reading, writing, queries and digests."""
