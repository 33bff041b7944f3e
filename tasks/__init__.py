"""What Prefect adds to each stage: retries, names and progress. One file per stage."""

from tasks.blocks import register_blocks

__all__ = ["register_blocks"]

register_blocks()  # whoever runs a task may have to read credentials from a block
