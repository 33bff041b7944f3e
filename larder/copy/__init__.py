"""Copies objects from store to store: what ``larder copy`` and the mirror of a dataset run.

A copy goes through `copy_settings`, `compare` (by the rules of `difference`), `plan` (`prices`,
`route`) and `run` to the steps of `copy_job`: batches, whose sets have `receipts`, and the `record`
at the end. `engine` copies a batch, each object in the cheapest way (`server_side`, `parts`,
`object`), with a `proof`; `skyplane` copies all at once. `prune` deletes what the record names and
is gone.
"""
