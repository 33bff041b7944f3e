"""Manifests: Arrow tables with pinned `schemas`, kept as Parquet: `manifest_files`.

`sort` and `query` (DuckDB) take and give streams of rows, `spool` keeps rows for a while, and
`pages` bounds the memory of a read. `digest` and `row_digest` have digests and checksums;
`extents` are the etags of ranges that are listed as objects.
"""
