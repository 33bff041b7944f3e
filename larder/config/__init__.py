"""Dataset and cluster files: `load` reads one through `text` and checks it against `models`.

Without pydantic, for the rest of the library: `urls`, `location`, `patterns`, `shape`.
"""
