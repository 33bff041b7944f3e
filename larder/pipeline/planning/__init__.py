"""What a run would do, as a value: from the listing of the source to a plan that is shown.

In order: source (the tag, the listing, permissions), expanding (archives, tables, annotations),
growth (what becomes of the previous version), new_segment, plan, checks (what is refused, what is
warned of), report. Nothing is written but temporary files, and indexes of archives and tables.
"""
