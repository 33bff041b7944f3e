"""LMDB caches, one file per split of a segment.

`fields` says which fields records have, as a `schema`; `from_samples` makes records of shards, with
parts decoded by `decoding`; `build` writes a file of them, each as `record` says. `fetch` downloads
a file, and `file` reads it.
"""
