"""LMDB caches: their records, how they are built, opened and fetched."""
