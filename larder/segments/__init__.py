"""Makes the new segment of a version: shards, their index and caches, in the order of the modules.

::

    pack -> segment_job -> mirror -> shard, receipts, reader_indexes -> index -> cache

`repacking` makes one shard again, for a repair. What a version consists of is said by `contents`,
what follows from that by `derived_files`, and whether all of it is there by `completeness`.
"""
