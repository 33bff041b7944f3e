"""``python -m flows.NAME``: the command ``larder NAME``, whose operation is run as a flow.

The library handles commands that need no flow run (--help, --plan, invalid input, nothing changed)
before Prefect is imported, because the import alone takes seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from flows.runs.configure import check_runner, has_server, prefect_ready
from larder.cli.exit import run
from larder.cli.main import command_of

if TYPE_CHECKING:
    from larder.cli.command import Command, Operation
    from larder.cli.display import Display
    from larder.jobs.step_runner import Execute


def flow_command(name: str) -> int:
    return run(lambda: main(name))


def main(name: str, arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    If a server is configured, the whole run is a flow run; otherwise only its work is.
    """

    def run_flow(
        operation: Operation, parameters: dict[str, Any], display: Display
    ) -> dict[str, Any]:
        def start(execute: Execute) -> dict[str, Any]:
            with prefect_ready(display) as ready:
                flow = getattr(import_module(f"flows.{name}"), name)
                from flows.runs.flow_run import call_flow

                return call_flow(flow, parameters, operation, execute, display, named=ready())

        check_runner(operation.runner)
        if has_server():
            return start(operation.compose)
        from larder.jobs.step_runner import InlineRunner

        return operation.compose(InlineRunner(operation.batches_at_once, display), start=start)

    def operation(**parameters: Any) -> Operation:
        from tasks.blocks import register_blocks

        register_blocks()
        return command.operation(**parameters)

    command: Command = command_of(name)
    runs = command._replace(operation=operation)
    return runs.main(arguments, f"python -m flows.{name}", run=run_flow)
