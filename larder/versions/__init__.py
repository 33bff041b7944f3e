"""What is published: where it is (`layout`), how it is named (`identity`), and what says so.

`documents` are segment.json, cache.json and version.json, `columns` the index that training reads,
`omitted` the rows that a version leaves out, `publish` the order of the last writes, and `tags` the
movable names.
"""
