"""``larder copy``: copies what is missing from a source to a storage, and nothing else.

``python -m flows.copy`` is the same command with another way to run the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from larder.cli.command import Parser, show
from larder.cli.places import flow_parameters, places_parser
from larder.cli.signals import interruptible, loading
from larder.packages import require

if TYPE_CHECKING:
    from larder.cli.display import Display
    from larder.pipeline.copying_plan import CopyPlan
    from larder.pipeline.copying_settings import CopySettings

DESCRIPTION = """\
Copy every object below SOURCE to STORAGE/KEY: what is there already, with the same digest or with a
receipt of an earlier copy, is not copied again. Every copy is verified. If a run is killed, run the
same command again to continue. Objects that are no longer in the source are left alone.\
"""

RunCopy = Callable[["CopySettings", dict[str, Any], "Display"], dict[str, Any]]
"""Executes a copy and returns its JSON document. Takes the settings, the flow parameters that they
come from, and the display."""


def run_here(
    settings: CopySettings, _parameters: dict[str, Any], display: Display
) -> dict[str, Any]:
    """Run in this process; once there is work, a signal lets the objects in progress finish."""
    import threading

    from larder.jobs.runner import InlineRunner
    from larder.pipeline.copying import copy, execute_copy

    stop = threading.Event()
    runner = InlineRunner(settings.workers, display, stop)

    def work(plan: CopyPlan) -> dict[str, Any]:
        with interruptible(stop, display.say):
            return execute_copy(plan, runner)

    return copy(settings, runner, execute_with=work)


def parser(prog: str) -> Parser:
    made = places_parser(prog, DESCRIPTION)
    made.add_argument(
        "--verify",
        metavar="HOW",
        help="how copies are checked: digest or size (default: copy.verify, which is digest)",
    )
    made.add_argument(
        "--retry-failed", action="store_true", help="copy only what the last copy failed for"
    )
    return made


def main(
    arguments: Sequence[str] | None = None,
    prog: str = "larder copy",
    *,
    run: RunCopy = run_here,
) -> int:
    namespace = parser(prog).parse_args(arguments)
    parameters = {
        **flow_parameters(namespace),
        "verify": namespace.verify,
        "retry_failed": namespace.retry_failed,
    }
    with loading():
        require("prepare")
        from larder.jobs.runner import InlineRunner
        from larder.pipeline.copying import copy
        from larder.pipeline.copying_report import copy_lines
        from larder.pipeline.copying_settings import load_copy_settings

        settings = load_copy_settings(**parameters)

    def work(display: Display) -> dict[str, Any]:
        if not namespace.plan:
            return run(settings, parameters, display)
        runner = InlineRunner(settings.workers, display)
        return copy(settings, runner, plan_only=True)

    show(namespace, work, copy_lines)
    return 0
