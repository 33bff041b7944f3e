"""Prepare a dataset: from its source to an experiment config.

``python -m flows.prepare --dataset digits``

What needs no flow run (--help, --plan, wrong input, nothing changed) is answered by the library
before Prefect is imported, because that alone takes seconds.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows._prefect import (
    configure_prefect,
    has_server,
    show_logs,
    start_server,
    with_prefect_start,
)
from larder.cli.command import command, options, print_json, run
from larder.cli.display import Display

if TYPE_CHECKING:
    from larder.pipeline.plan import Plan
    from larder.pipeline.settings import Settings

__all__ = ["main"]

DESCRIPTION = """\
Prepare a dataset: list its source, copy what is missing to the local side, write shards, build the
LMDB cache, publish a version and emit the experiment config that points at it. A run that was cut
off is carried on by the same command; a run with nothing changed writes nothing.\
"""


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    started = time.monotonic()
    parser = command("python -m flows.prepare", DESCRIPTION)
    parser.add_argument("--plan", action="store_true", help="print what would be done, and stop")
    parser.add_argument(
        "--output",
        metavar="DIR",
        type=Path,
        help="where configs go (default: out/CLUSTER/DATASET)",
    )
    namespace = parser.parse_args(arguments)
    shared = options(namespace)

    from larder.pipeline.settings import load_settings

    settings = load_settings(
        shared.dataset,
        shared.cluster,
        config_dir=shared.config_dir,
        settings=shared.settings,
        output=namespace.output,
    )
    with Display(quiet=shared.quiet) as display:
        if namespace.plan:
            from larder.pipeline.inline import plan
            from larder.pipeline.report import plan_lines

            document = with_prefect_start(plan(settings, display))
            lines = plan_lines(document)
        else:
            from larder.pipeline.report import run_lines

            parameters = {
                "dataset": shared.dataset,
                "cluster": shared.cluster,
                "settings": list(shared.settings),
                "config_dir": str(shared.config_dir),
                "output": str(settings.output),
            }
            document = _prepare(settings, parameters, display)
            document["seconds"] = round(time.monotonic() - started, 3)  # Prefect's start included
            lines = run_lines(document)
    if shared.json:
        print_json(document)
    elif not shared.quiet or namespace.plan:
        print("\n".join(lines))
    return 0


def _prepare(settings: Settings, parameters: dict[str, Any], display: Display) -> dict[str, Any]:
    """Answer at once if nothing changed and no server wants to see the run; else run the flow."""
    from larder.pipeline.inline import checked_plan, reuse
    from larder.pipeline.job import scratch
    from larder.pipeline.survey import survey

    if has_server():
        return _run_flow(settings, parameters, None, display)
    started = time.monotonic()
    with scratch() as folder:
        found = survey(settings.dataset, settings.cluster, folder, display)
        if found.published is not None:
            return reuse(settings, found, started)
        plan = checked_plan(settings, found, folder, display)
        return _run_flow(settings, parameters, plan, display)


def _run_flow(
    settings: Settings, parameters: dict[str, Any], plan: Plan | None, display: Display
) -> dict[str, Any]:
    display.start("prefect")
    display.note("prefect", "importing")
    hidden = configure_prefect()
    wait = None if has_server() else start_server()
    with hidden.guard():
        from flows.prepare_flow import run_prepare

        show_logs(display.say, hidden)
        if wait:
            display.note("prefect", "starting a server")
            wait()
        return run_prepare(parameters, plan, display, named=wait is None)


if __name__ == "__main__":
    sys.exit(run(main))
