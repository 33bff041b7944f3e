"""Packing samples into shards: one writer per format, and the indexes of what was written."""
