"""Prefect's additions to the steps: retries, names, progress, and credentials from its blocks."""

from tasks.blocks import register_blocks

__all__ = ["register_blocks"]

register_blocks()  # any task may have to read credentials from a block
