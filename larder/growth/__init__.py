"""What becomes of a dataset: its samples now are compared with its previous version.

previous: the tables of the previous version; compare: what each sample is, compared with them;
content_check: reads objects where etags do not tell; decision: what becomes of the version;
select: the rows of its new segment, and those that it omits.
"""
