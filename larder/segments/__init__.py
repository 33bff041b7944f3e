"""Makes the new segment of a version: shards, their index and caches, in the order of the modules.

::

    pack -> segment_job -> mirror -> shard, reader_indexes -> index_step -> cache_step

`repacking` makes one shard again, for a repair. `named_files` lists the files of a version,
`derived_files` makes the files that follow from these, and `completeness` checks that all of them
exist.
"""
