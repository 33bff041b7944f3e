"""The main job, from settings to a published version and its configs, in the order of its modules.

::

    settings -> source -> previous, compare, decide, selected, growth -> pack, new_segment
        -> plan -> plan_checks, plan_report -> prepare (begins a job) -> build:
        mirror -> shard, receipts, finished -> index -> cache -> publish -> configs -> run_report

Each step takes and returns small values (`job`); manifests are passed by reference (`manifests`).
What a version consists of is said by `contents`, and whether all of it is there by `completeness`.
The modules copy*, pruning and route are the job of ``larder copy`` and of the mirror.
"""
