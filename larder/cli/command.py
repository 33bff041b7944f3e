"""A command that runs an operation: here, or as a flow.

Nothing slow is imported here, so that ``--help`` and invalid flags are answered at once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from larder.cli.arguments import Add, Parser, parser
from larder.cli.exit import error_fields, tell_failures
from larder.cli.output import DONE, print_json, print_text, tell
from larder.cli.signals import interruptible, loading
from larder.errors import DamageError, Failure
from larder.jobs.results import RunError
from larder.packages import require

if TYPE_CHECKING:
    from larder.cli.display import Display
    from larder.config.models.copy_config import RunnerConfig
    from larder.config.models.locations import Location
    from larder.jobs.step_runner import Execute

_OF_OUTPUT = ("plan", "json", "quiet")

Lines = Callable[[Mapping[str, Any]], list[str]]
"""A JSON document as lines for people."""


class Operation(NamedTuple):
    """The operation of a command, with given parameters.

    Attributes:
        batches_at_once: Maximum number of concurrent batches.
        compose: Takes a runner, and perhaps ``plan_only``, or ``start``, which chooses where the
            plan is executed. Returns the JSON document of the run, or of its plan.
        lines: Formats the document of a run.
        plan_lines: Formats the document of a plan.
        runner: The runner of its batches.
        storage: The location that all batches read and write.
        memory: Maximum bytes of objects in memory, on each machine.
        source: The location that batches only read.
    """

    batches_at_once: int
    compose: Callable[..., dict[str, Any]]
    lines: Lines
    plan_lines: Lines
    runner: RunnerConfig
    storage: Location
    memory: int
    source: Location | None = None

    def planning(self) -> Operation:
        compose = partial(self.compose, plan_only=True)
        return self._replace(compose=compose, lines=self.plan_lines)


Run = Callable[[Operation, dict[str, Any], "Display"], dict[str, Any]]
"""A function that runs an operation made from parameters, and returns its JSON document."""


def run_here(
    operation: Operation, _parameters: Mapping[str, Any], display: Display
) -> dict[str, Any]:
    """Run in this process; once there is work, a signal lets the objects in progress finish."""
    import threading

    from larder.jobs.step_runner import InlineRunner, only_here

    only_here(operation.runner)
    stop = threading.Event()
    runner = InlineRunner(operation.batches_at_once, display, stop)

    def start(execute: Execute) -> dict[str, Any]:
        with interruptible(stop, display.say):
            return execute(runner)

    return operation.compose(runner, start=start)


class Command(NamedTuple):
    """A command that runs an operation, and the description of its parameters.

    The arguments of its parser are the parameters of the operation, and the fields in the form of
    the flow of the same name.

    Attributes:
        adds: Functions that add its arguments to a parser.
        operation: Makes the operation from the configuration that the parameters name.
    """

    name: str
    description: str
    adds: tuple[Add, ...]
    operation: Callable[..., Operation]

    def parser(self, prog: str = "") -> Parser:
        return parser(prog or f"larder {self.name}", self.description, *self.adds)

    def main(
        self, arguments: Sequence[str] | None = None, prog: str = "", *, run: Run = run_here
    ) -> int:
        """Run it; returns the exit status."""
        started = time.monotonic()
        namespace = self.parser(prog).parse_args(arguments)
        parameters = {
            name: value for name, value in vars(namespace).items() if name not in _OF_OUTPUT
        }
        with loading():
            require("prepare")
            operation = self.operation(**parameters)
            from larder.cli.display import Display
            from larder.jobs.step_runner import InlineRunner

        error: DamageError | RunError | None = None
        plan_only = getattr(namespace, "plan", False)
        with Display(quiet=namespace.quiet) as display:
            if plan_only:
                operation = operation.planning()
                document = operation.compose(InlineRunner(operation.batches_at_once, display))
            else:
                try:
                    document = run(operation, parameters, display)
                except (DamageError, RunError) as raised:
                    if raised.document is None:
                        raise
                    error, document = raised, dict(raised.document)
                seconds = time.monotonic() - started - display.waited_seconds()
                document["seconds"] = round(seconds, 3)
                document["stages"] = display.stages()  # including stages before the flow run
        if isinstance(error, RunError):
            if not namespace.json and (lines := list(operation.lines(document))):
                print_text("\n".join(lines), hint=DONE)
            raise error
        _show(document, operation.lines, namespace, error)
        return error.exit_status if error else 0


def _show(
    document: dict[str, Any], lines: Lines, namespace: argparse.Namespace, error: DamageError | None
) -> None:
    plan = getattr(namespace, "plan", False)
    hint = "make room, or redirect the output" if plan else DONE
    if namespace.json:
        print_json({**document, "error": error_fields(error)} if error else document, hint=hint)
    elif not namespace.quiet or plan or error:
        print_text("\n".join(lines(document)), hint=hint)
    if namespace.json or (namespace.quiet and not plan):
        for each in document.get("datasets", [document]):
            _tell_summary(each)
    if error:
        tell(f"error[{error.code}]: {error}")


def _tell_summary(document: Mapping[str, Any]) -> None:
    """Tell warnings and skipped samples, which only the summary would show."""
    for warning in document.get("warnings", ()):
        tell(f"warning[{warning['code']}]: {warning['message']}")
    skipped = document.get("skipped")
    if skipped is None:
        return
    failures = [Failure(**failure) for failure in document["failures"]]
    if failures:
        tell_failures("skipped", failures, skipped)
    elif skipped:
        tell(f"skipped: {skipped:,}, when this version was built")
