"""Packs samples into shards: one writer per format, and the indexes of the shards."""
