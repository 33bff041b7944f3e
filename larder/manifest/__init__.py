"""Manifests: Arrow tables with pinned schemas, kept as Parquet; and documents with a digest."""
