"""Published versions: their keys (`layout`), their identities (`identity`) and their documents.

`documents` defines segment.json, cache.json and version.json. `index` (in `arrays`) is the index of
a segment for readers, and `rows` the same index for a build. `omitted` lists the rows that a
version leaves out. `publish` makes the last writes in order, `tags` finds versions by name and
moves tags, `runs` records runs, and `version_copy` lists and copies the files of a version.
"""
