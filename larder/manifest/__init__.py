"""Manifests: schemas, reading and writing, joins and sorts, digests."""
