"""The steps of a run, in order: what flows run as tasks, and what `prepare` runs inline.

::


    load_settings -> inspect_source -> make_plan -> begin -> mirror_batch ...
        -> shard_batch ... -> index_shards -> cache_split ... -> publish -> emit_configs

Each step takes and returns small values; manifests are passed by reference.
"""
