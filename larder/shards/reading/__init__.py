"""Reads the samples of a shard that is being written, and ranges of shards.

`readahead` divides samples into lots, which threads `fetch` into memory; a sample that is too
`large` for that is streamed. `ranges` reads parts of published shards, in any order of builds.
"""
