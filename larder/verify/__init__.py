"""Reads everything of a version again, and repairs damaged files.

::

    inspect_version -> repair_small ... -> verify_batch ... -> repair_large ...

Without repair, only `inspect_version` and `verify_batch` run, and nothing is written.
"""
