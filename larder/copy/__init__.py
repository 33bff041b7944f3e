"""Copies objects from store to store: what ``larder copy`` and the mirror of a dataset run.

`difference` and `outstanding` say what is missing, `prices` what it costs; `engine` copies a batch,
each object in the cheapest way (`server_side`, `parts` or `object`); `skyplane` copies all at once.
"""
