"""Read a published version again, and repair what is damaged.

``python -m flows.verify --dataset digits``

The command is that of `larder.cli.verify`; here it is run as a Prefect flow.
"""

from __future__ import annotations

from larder.cli.signals import arm

if __name__ == "__main__":
    arm()  # first of all: until then Python itself handles signals, with a traceback

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flows.runs.configure import prefect_ready
from larder.cli import verify
from larder.cli.command import run

if TYPE_CHECKING:
    from larder.cli.display import Display
    from larder.verify.run import VerifySettings


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    return verify.main(arguments, "python -m flows.verify", run=run_flow)


def run_flow(
    _options: VerifySettings, parameters: dict[str, Any], display: Display
) -> dict[str, Any]:
    """The whole verification is a flow run."""
    with prefect_ready(display) as ready:
        from flows.verify_flow import run_verify

        return run_verify(parameters, display, named=ready())


if __name__ == "__main__":
    sys.exit(run(main))
