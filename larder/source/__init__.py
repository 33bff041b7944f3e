"""What there is at a source: listings, inventory reports, and the objects inside of objects.

`larder.source.inventory` lists a source into an `larder.source.inventory`, by the keys of
`larder.source.selection`; `larder.source.reports` reads inventory reports instead of listing; and
`larder.source.expand` replaces archives, tables and annotation files with what is in them.
"""
