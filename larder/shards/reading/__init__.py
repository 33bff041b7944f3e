"""Reading of samples for a shard being written, and of ranges of shards.

`readahead` divides samples into lots, which threads `fetch` into memory; samples too `large` for
memory are streamed. `ranges` reads parts of published shards, in any order of builds.
"""
