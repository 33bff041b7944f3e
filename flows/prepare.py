"""Prepare a dataset: from its source to an experiment config.

``python -m flows.prepare --dataset digits``

The command is that of `larder.cli.prepare`; here what was planned is run as a Prefect flow. What
needs no flow run (--help, --plan, wrong input, nothing changed) is answered by the library before
Prefect is imported, because that alone takes seconds.
"""

from __future__ import annotations

from larder.cli.signals import arm

if __name__ == "__main__":
    arm()  # first of all: until then Python answers a signal, with a traceback

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flows._prefect import (
    configure_prefect,
    has_server,
    show_logs,
    start_server,
    with_prefect_start,
)
from flows._settings import load_prefect
from larder.cli import prepare
from larder.cli.command import run

if TYPE_CHECKING:
    from larder.cli.display import Display
    from larder.pipeline.plan import Plan
    from larder.pipeline.settings import Settings

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    return prepare.main(
        arguments,
        "python -m flows.prepare",
        run=_run_flow,
        whole=has_server,
        with_start=with_prefect_start,
    )


def _run_flow(
    settings: Settings, parameters: dict[str, Any], plan: Plan | None, display: Display
) -> dict[str, Any]:
    display.start("prefect")
    display.note("prefect", "importing")
    hidden = configure_prefect()
    wait = None if has_server() else start_server()
    with hidden.guard():
        for line in load_prefect():
            display.say(hidden(line))
        from flows.prepare_flow import run_prepare

        show_logs(display.say, hidden)
        if wait:
            display.note("prefect", "starting a server")
            wait()
        return run_prepare(parameters, plan, display, named=wait is None)


if __name__ == "__main__":
    sys.exit(run(main))
