"""Objects of a source: listings, inventory reports, and objects inside of objects.

`larder.source.inventory` lists the keys of a source that `larder.source.selection` selects.
`larder.source.reports` reads inventory reports instead of listing. `larder.source.expand` replaces
archives and tables with their members and rows, and reads annotation files.
"""
