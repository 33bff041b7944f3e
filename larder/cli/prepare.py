"""``larder prepare``: from a source to an experiment config.

``python -m flows.prepare`` is the same command with another way to run the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from larder.cli.command import command, shared_parameters, show
from larder.cli.signals import interruptible, loading
from larder.packages import require

if TYPE_CHECKING:
    from larder.cli.display import Display
    from larder.pipeline.job import Job
    from larder.pipeline.plan import Plan
    from larder.pipeline.settings import Settings

DESCRIPTION = """\
Prepare a dataset: list its source, copy what is missing to the storage, write shards, build the
LMDB cache, publish a version and emit the experiment config that points at it. If a run is killed,
run the same command again to continue. If nothing has changed, nothing is written.\
"""

Run = Callable[["Settings", dict[str, Any], "Display"], dict[str, Any]]
"""Executes a run and returns its JSON document. Takes the settings, the flow parameters that they
come from, and the display."""


def run_here(settings: Settings, _parameters: dict[str, Any], display: Display) -> dict[str, Any]:
    """Run in this process; once there is work, a signal lets the objects in progress finish."""
    import threading

    from larder.jobs.runner import InlineRunner
    from larder.pipeline.prepare import execute, prepare

    stop = threading.Event()
    runner = InlineRunner(settings.workers, display, stop)

    def work(plan: Plan, job: Job) -> dict[str, Any]:
        with interruptible(stop, display.say):
            return execute(plan, job, runner)

    return prepare(settings, runner, execute_with=work)


def main(
    arguments: Sequence[str] | None = None,
    prog: str = "larder prepare",
    *,
    run: Run = run_here,
) -> int:
    return command_main(arguments, prog, DESCRIPTION, run=run, compact=False)


def command_main(
    arguments: Sequence[str] | None,
    prog: str,
    description: str,
    *,
    run: Run,
    compact: bool,
) -> int:
    parser = command(prog, description)
    parser.add_argument("--plan", action="store_true", help="print what would be done, and exit")
    parser.add_argument(
        "--output",
        metavar="DIR",
        type=Path,
        help="where to write configs (default: out/CLUSTER/DATASET)",
    )
    namespace = parser.parse_args(arguments)
    with loading():
        require("prepare")
        from larder.pipeline.settings import load_settings

        settings = load_settings(
            namespace.dataset,
            namespace.cluster,
            config_dir=namespace.config_dir,
            settings=namespace.set,
            output=namespace.output,
            compact=compact,
        )
        # After parsing, so that invalid input is refused before anything slow is imported.
        from larder.jobs.runner import InlineRunner
        from larder.pipeline.plan_report import plan_lines
        from larder.pipeline.prepare import prepare
        from larder.pipeline.run_report import run_lines

    def work(display: Display) -> dict[str, Any]:
        if namespace.plan:
            return prepare(settings, InlineRunner(settings.workers, display), plan_only=True)
        parameters = {
            "dataset": namespace.dataset,
            "output": str(settings.output),
            **shared_parameters(namespace),
        }
        return run(settings, parameters, display)

    show(namespace, work, plan_lines if namespace.plan else run_lines)
    return 0
