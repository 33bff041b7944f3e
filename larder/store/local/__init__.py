"""A directory as a `store`; `write`, `walk` and `files` are how its files are handled."""
