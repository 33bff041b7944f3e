"""Copies objects from store to store: for ``larder copy`` and for the mirror of a dataset.

A copy goes through `copy_settings`, `copy_matches` (by the rules of `copy_comparison`), `copy_plan`
(`prices`, `route`) and `copying` to the steps of `copy_job`: batches, whose sets have
`copy_receipts`, and the `copy_record` at the end. `engine` copies a batch, each object in the
cheapest way (`server_side`, `large_object`, `object`), with a `proof`; `skyplane` copies everything
at once. `pruning` deletes recorded copies whose objects are gone.
"""
