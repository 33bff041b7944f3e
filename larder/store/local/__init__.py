"""A directory as a `store`; `write`, `walk` and `files` handle its files."""
