"""LMDB caches, one file per split of a segment.

`fields` chooses the fields of records, as a `schema`. `from_samples` makes records from shards,
with parts decoded by `decoding`; `cache_file_build` writes them to a file, encoded by
`cache_record`. `file` downloads and reads a file.
"""
