"""Copies objects from store to store: for ``larder copy`` and for the mirror of a dataset.

A copy goes through `copy_settings`, `copy_comparison` (by the rules of `copy_matches`), `copy_plan`
(`prices`, `route`) and `copying` to the batches of `copy_job`, whose sets have `copy_receipts`, and
to `copy_end`, which writes the `copy_record`; `copy_place` has their keys. `engine` copies a batch,
each object in the cheapest way (`server_side`, `large_object`, `object`), with a `proof`;
`skyplane` copies everything at once. `pruning` deletes recorded copies whose objects are gone.
"""
