"""What is published: where it is (`layout`), how it is named (`identity`), and what says so.

`documents` are segment.json, cache.json and version.json, `index` (in `arrays`) is what training
reads, `rows` the same for a build, `omitted` what a version leaves out, `publish` the order
of the last writes, `tags` the movable names, and `runs` what is recorded of who did it.
"""
