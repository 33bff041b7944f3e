"""Manifests: schemas, reading and writing, sorting, digests."""
