"""``larder prepare``: from a source to an experiment config.

``python -m flows.prepare`` is the same command with another way to run the plan.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from larder.cli.command import command, options, tell_failures
from larder.cli.output import DONE, print_json, print_text, tell
from larder.cli.signals import interruptible, loading
from larder.errors import Failure
from larder.packages import require

if TYPE_CHECKING:
    from larder.cli.display import Display
    from larder.pipeline.job import Job
    from larder.pipeline.plan import Plan
    from larder.pipeline.settings import Settings

__all__ = ["Run", "command_main", "main", "run_here", "tell_warnings"]

DESCRIPTION = """\
Prepare a dataset: list its source, copy what is missing to the storage, write shards, build the
LMDB cache, publish a version and emit the experiment config that points at it. If a run is killed,
run the same command again to continue. If nothing has changed, nothing is written.\
"""

Run = Callable[["Settings", dict[str, Any], "Display"], dict[str, Any]]
"""Executes a run and returns its JSON document. Takes the settings, the flow parameters that they
come from, and the display."""


def run_here(settings: Settings, _parameters: dict[str, Any], display: Display) -> dict[str, Any]:
    """Run in this process. Once there is work to do, a signal lets the objects in progress finish.

    Raises:
        KeyboardInterrupt: The user interrupted the run, and the steps have stopped.
    """
    import threading

    from larder.pipeline.inline import InlineRunner, workers
    from larder.pipeline.prepare import execute, prepare

    stop = threading.Event()
    runner = InlineRunner(workers(settings), display, stop)

    def work(plan: Plan, job: Job) -> dict[str, Any]:
        with interruptible(stop, display.say):
            return execute(plan, job, runner)

    return prepare(settings, runner, execute_with=work)


def main(
    arguments: Sequence[str] | None = None,
    prog: str = "larder prepare",
    *,
    run: Run = run_here,
    with_start: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> int:
    """The command; returns its exit status. The arguments are those of `command_main`."""
    return command_main(arguments, prog, DESCRIPTION, run=run, with_start=with_start, compact=False)


def command_main(
    arguments: Sequence[str] | None,
    prog: str,
    description: str,
    *,
    run: Run,
    with_start: Callable[[dict[str, Any]], dict[str, Any]],
    compact: bool,
) -> int:
    """A command that prepares a dataset; returns its exit status.

    Args:
        arguments: The command line arguments; those of this process if None.
        prog: How the command is called.
        description: What it does, for --help.
        run: Executes the run.
        with_start: Adds to a plan's document the time that ``run`` takes to start.
        compact: Whether all samples are to be in a single segment.
    """
    started = time.monotonic()
    parser = command(prog, description)
    parser.add_argument("--plan", action="store_true", help="print what would be done, and exit")
    parser.add_argument(
        "--output",
        metavar="DIR",
        type=Path,
        help="where to write configs (default: out/CLUSTER/DATASET)",
    )
    namespace = parser.parse_args(arguments)
    shared = options(namespace)
    with loading():
        require("prepare")
        from larder.pipeline.settings import load_settings

        settings = load_settings(
            shared.dataset,
            shared.cluster,
            config_dir=shared.config_dir,
            settings=shared.settings,
            output=namespace.output,
            compact=compact,
        )
        # After parsing, so that invalid input is refused before anything slow is imported.
        from larder.cli.display import Display
        from larder.pipeline.inline import plan
        from larder.pipeline.planned import plan_lines
        from larder.pipeline.report import run_lines

    with Display(quiet=shared.quiet) as display:
        if namespace.plan:
            document = with_start(plan(settings, display))
            lines = plan_lines(document)
        else:
            parameters = {
                "dataset": shared.dataset,
                "cluster": shared.cluster,
                "settings": list(shared.settings),
                "config_dir": str(shared.config_dir),
                "output": str(settings.output),
            }
            document = run(settings, parameters, display)
            document["seconds"] = round(time.monotonic() - started, 3)
            document["stages"] = display.stages()  # including those before the flow run
            lines = run_lines(document)
    hint = "make room, or redirect the output" if namespace.plan else DONE
    if shared.json:
        print_json(document, hint=hint)
    elif not shared.quiet or namespace.plan:
        print_text("\n".join(lines), hint=hint)
    if shared.json or (shared.quiet and not namespace.plan):
        tell_warnings(document)
        _tell_skipped(document)
    return 0


def tell_warnings(document: Mapping[str, Any]) -> None:
    """Show the warnings that the summary would show."""
    for warning in document.get("warnings", ()):
        tell(f"warning[{warning['code']}]: {warning['message']}")


def _tell_skipped(document: Mapping[str, Any]) -> None:
    """Show what the summary would show, so that nothing is left out silently."""
    failures = [Failure(**failure) for failure in document["failures"]]
    if failures:
        tell_failures("skipped", failures, document["skipped"])
    elif document["skipped"]:
        tell(f"skipped: {document['skipped']:,}, when this version was built")
