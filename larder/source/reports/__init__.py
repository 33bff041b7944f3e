"""Inventory reports: the objects of a bucket, from a file, when there are too many to list."""
