"""``larder compact``: all samples of a dataset in a single segment.

``python -m flows.compact`` is the same command with another way to run the plan.
"""

from __future__ import annotations

from collections.abc import Sequence

from larder.cli import prepare
from larder.cli.prepare import Run, run_here

DESCRIPTION = """\
Prepare a dataset as a version of one segment, without omitted rows. What has not changed is read
from the shards of the current version, not from the source. Classes keep their numbers. The current
version remains as it is; training that uses it is not disturbed.\
"""


def main(
    arguments: Sequence[str] | None = None,
    prog: str = "larder compact",
    *,
    run: Run = run_here,
) -> int:
    return prepare.command_main(arguments, prog, DESCRIPTION, run=run, compact=True)
