"""Makes the new segment of a version: shards, their index and caches, in the order of the modules.

::

    pack -> job -> mirror -> shard, receipts, reader_indexes -> index, columns -> cache

What a version consists of is said by `contents`, and whether all of it is there by `completeness`.
"""
