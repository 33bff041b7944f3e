"""Packs samples into shards.

`sizes` computes the bytes of samples, `packing` plans the shards, and `shard_build` writes a shard.
`reading` fetches samples from their objects, `old_shards` from the shards of earlier segments.
`images` checks and transforms images. `formats` make the bytes, the `index_rows`, and from
these the index files for other readers.
"""
