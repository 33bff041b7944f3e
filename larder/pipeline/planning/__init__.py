"""The plan of a run: from the listing of the source to a plan that is shown.

In order: `source_state` (the tag, the listing, permissions), `expanding` (archives, tables,
annotations), `growth_plan` (the use of the previous version), `plan`, `checks` (refusals and
warnings), `plan_report`. Only temporary files, and indexes of archives and tables, are written.
"""
