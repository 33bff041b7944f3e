"""Put all samples of a dataset into one segment.

``python -m flows.compact --dataset digits``

The command is that of `larder.cli.compact`, run as `flows.prepare` runs its own.
"""

from __future__ import annotations

from larder.cli.signals import arm

if __name__ == "__main__":
    arm()  # first of all: until then Python itself handles signals, with a traceback

import sys
from collections.abc import Sequence

from flows.prepare import run_flow
from larder.cli import compact
from larder.cli.command import run


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    return compact.main(arguments, "python -m flows.compact", run=run_flow)


if __name__ == "__main__":
    sys.exit(run(main))
