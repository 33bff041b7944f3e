"""Manifests: Arrow tables with pinned `schemas`, kept as Parquet `files`.

`sort` and `query` (DuckDB) take and give streams of rows, `spool` keeps some for a while, and
`ranged` reads rows of a remote file. `digest` and `rows` have digests and checksums; `extents` are
the etags of ranges that are listed as objects.
"""
