"""Prepare a dataset: from its source to an experiment config.

``python -m flows.prepare --dataset digits``

The command is that of `larder.cli.prepare`; here the plan is run as a Prefect flow. The library
handles what needs no flow run (--help, --plan, invalid input, nothing changed) before Prefect is
imported, because that alone takes seconds.
"""

from __future__ import annotations

from larder.cli.signals import arm

if __name__ == "__main__":
    arm()  # first of all: until then Python itself handles signals, with a traceback

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flows.runs.configure import has_server, prefect_ready
from larder.cli import prepare
from larder.cli.command import run
from tasks.blocks import register_blocks

if TYPE_CHECKING:
    from larder.cli.display import Display
    from larder.pipeline.job import Job
    from larder.pipeline.plan import Plan
    from larder.pipeline.settings import Settings


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    register_blocks()
    return prepare.main(arguments, "python -m flows.prepare", run=run_flow)


def run_flow(settings: Settings, parameters: dict[str, Any], display: Display) -> dict[str, Any]:
    """If a server is configured, the whole run is a flow run; otherwise only its work is."""
    if has_server():
        return _run_flow(parameters, display, compact=settings.compact)
    from larder.jobs.runner import InlineRunner
    from larder.pipeline.prepare import prepare as compose

    runner = InlineRunner(settings.workers, display)
    return compose(
        settings,
        runner,
        execute_with=lambda *planned: _run_flow(
            parameters, display, planned, compact=settings.compact
        ),
    )


def _run_flow(
    parameters: dict[str, Any],
    display: Display,
    planned: tuple[Plan, Job] | None = None,
    *,
    compact: bool,
) -> dict[str, Any]:
    with prefect_ready(display) as ready:
        from flows.prepare_flow import run_prepare

        return run_prepare(parameters, planned, display, named=ready(), compact=compact)


if __name__ == "__main__":
    sys.exit(run(main))
