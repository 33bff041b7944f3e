"""Makes the new segment of a version: shards, their index and caches, in the order of the modules.

::

    pack -> segment_job -> mirror -> shard, reader_indexes -> index_step -> cache_step

`derived_files` makes files that follow from the shards of a version, and `completeness` checks that
all files of a version exist. `index_check` compares the places in an index with the shard.
"""
