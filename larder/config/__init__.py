"""Dataset and cluster files: `load` reads one as `text` and checks it against `models`.

Mistakes become `messages`. For the rest of the library, without pydantic: `urls`, `patterns`,
`shape`.
"""
