"""The growth of a dataset: a new version from the current samples and the previous version.

`previous` reads the tables of the previous version. `compare` finds the kind of each sample, and
`content_check` reads objects if etags do not tell. `decision` keeps or replaces segments. `select`
chooses the samples of the new segment, and the omitted rows.
"""
