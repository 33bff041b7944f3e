"""Packs samples into shards.

`sizes` says what samples take, `packing` which go into a shard together, and `build` writes one:
`reading` gets the contents of samples from their objects, or `old_shards` from the shards that they
were packed into before; `images` checks and transforms images; one of `formats` makes the bytes and
`index_rows`, from which the `indexes` of other readers are made.
"""
