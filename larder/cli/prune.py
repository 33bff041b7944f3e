"""``larder prune``: deletes copies of objects that are no longer in the source.

``python -m flows.prune`` is the same command with another way to run the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from larder.cli.command import Parser, show
from larder.cli.places import flow_parameters, places_parser
from larder.cli.signals import interruptible, loading
from larder.errors import ConfigError
from larder.packages import require

if TYPE_CHECKING:
    from larder.cli.display import Display
    from larder.pipeline.pruning import PrunePlan, PruneSettings

DESCRIPTION = """\
Delete from STORAGE what larder copy has written there from SOURCE and is no longer in SOURCE. It is
planned first: nothing is deleted if the source is empty or cannot be listed completely, or if more
would be deleted than --max-delete allows.\
"""

RunPrune = Callable[["PruneSettings", dict[str, Any], "Display"], dict[str, Any]]
"""Executes a prune and returns its JSON document; see `larder.cli.copy.RunCopy`."""


def run_here(
    settings: PruneSettings, _parameters: dict[str, Any], display: Display
) -> dict[str, Any]:
    import threading

    from larder.jobs.runner import InlineRunner
    from larder.pipeline.pruning import execute_prune, prune

    stop = threading.Event()
    runner = InlineRunner(1, display, stop)

    def work(plan: PrunePlan) -> dict[str, Any]:
        with interruptible(stop, display.say):
            return execute_prune(plan, runner)

    return prune(settings, runner, execute_with=work)


def parser(prog: str) -> Parser:
    made = places_parser(prog, DESCRIPTION)
    made.add_argument(
        "--max-delete",
        metavar="N",
        help="delete at most N objects (default: 1,000, and at most 10 percent of the copies)",
    )
    return made


def main(
    arguments: Sequence[str] | None = None,
    prog: str = "larder prune",
    *,
    run: RunPrune = run_here,
) -> int:
    namespace = parser(prog).parse_args(arguments)
    max_delete = _whole(namespace.max_delete)
    shared = flow_parameters(namespace)
    with loading():
        require("prepare")
        from larder.jobs.runner import InlineRunner
        from larder.pipeline.copying_settings import load_copy_settings
        from larder.pipeline.pruning import PruneSettings, prune, prune_lines

        settings = PruneSettings(load_copy_settings(**shared), max_delete)

    def work(display: Display) -> dict[str, Any]:
        if namespace.plan:
            return prune(settings, InlineRunner(1, display), plan_only=True)
        return run(settings, {**shared, "max_delete": max_delete}, display)

    show(namespace, work, prune_lines)
    return 0


def _whole(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        message, hint = "expected a whole number", "write --max-delete 1000"
        raise ConfigError("config.invalid_flag", message, where="--max-delete", hint=hint)
    return int(text)
