"""Reads everything of a version again, and repairs what is damaged.

::

    inspect_version -> repair_small ... -> verify_batch ... -> repair_large ...

Without repair there are only `inspect_version` and `verify_batch`, and nothing is written.
"""
