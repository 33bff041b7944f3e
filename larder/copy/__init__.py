"""Copies objects from store to store: for ``larder copy`` and for the mirror of a dataset.

A copy goes through `copy_settings`, `compare` (by the rules of `difference`), `plan` (`prices`,
`route`) and `run` to the steps of `copy_job`: batches, whose sets have `receipts`, and the `record`
at the end. `engine` copies a batch, each object in the cheapest way (`server_side`, `parts`,
`object`), with a `proof`; `skyplane` copies everything at once. `prune` deletes recorded copies
whose objects are gone.
"""
