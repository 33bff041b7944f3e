"""Copy what is missing from a source to a storage.

``python -m flows.copy s3://source/prefix s3://storage/prefix``

The command is that of `larder.cli.copy`; here the plan is run as a Prefect flow, as in
`flows.prepare`.
"""

from __future__ import annotations

from larder.cli.signals import arm

if __name__ == "__main__":
    arm()  # first of all: until then Python itself handles signals, with a traceback

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flows.runs.configure import has_server, prefect_ready
from larder.cli import copy
from larder.cli.command import run

if TYPE_CHECKING:
    from larder.cli.display import Display
    from larder.pipeline.copying_plan import CopyPlan
    from larder.pipeline.copying_settings import CopySettings


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    return copy.main(arguments, "python -m flows.copy", run=run_flow)


def run_flow(
    settings: CopySettings, parameters: dict[str, Any], display: Display
) -> dict[str, Any]:
    """If a server is configured, the whole run is a flow run; otherwise only its work is."""
    if has_server():
        return _run_flow(parameters, display)
    from larder.jobs.runner import InlineRunner
    from larder.pipeline import copying

    runner = InlineRunner(settings.workers, display)
    return copying.copy(
        settings, runner, execute_with=lambda plan: _run_flow(parameters, display, plan)
    )


def _run_flow(
    parameters: dict[str, Any], display: Display, planned: CopyPlan | None = None
) -> dict[str, Any]:
    with prefect_ready(display) as ready:
        from flows.copy_flow import run_copy

        return run_copy(parameters, planned, display, named=ready())


if __name__ == "__main__":
    sys.exit(run(main))
