"""Dataset and cluster files: `load` reads a file as `text` and checks it against `models`.

Mistakes become `messages`. The rest of the library uses `urls`, `patterns` and `shape`, which do
not need pydantic.
"""
