"""``larder prepare`` and ``larder compact``: from a source to an experiment config."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from larder.cli.arguments import add_dataset, add_output, add_plan
from larder.cli.command import Command, Operation

if TYPE_CHECKING:
    from larder.jobs.step_runner import Execute, Runner, Start
    from larder.pipeline.settings import Settings

_PREPARE = """\
Prepare a dataset: list its source, copy what is missing to the storage, write shards, build the
LMDB cache, publish a version and emit the experiment config that points at it. If a run is killed,
run the same command again to continue. If nothing has changed, nothing is written.\
"""
_COMPACT = """\
Prepare a dataset as a version of one segment, without omitted rows. What has not changed is read
from the shards of the current version, not from the source. Classes keep their numbers. The current
version remains as it is; training that uses it is not disturbed.\
"""
_ARGUMENTS = (add_dataset, add_plan, add_output)


def _operation(**flags: Any) -> Operation:
    from larder.pipeline.settings import load_settings

    loaded = load_settings(**flags)
    # Only now, so that invalid input is refused before slow imports.
    from larder.pipeline.run_report import run_lines

    compose = partial(prepare_with_card, loaded)
    of_cluster, source = loaded.cluster, loaded.dataset.source
    batches = of_cluster.runner, of_cluster.storage, of_cluster.copy_.memory, source
    return Operation(loaded.batches_at_once, compose, run_lines, _plan_lines, *batches)


def _plan_lines(document: Mapping[str, Any]) -> list[str]:
    from larder.pipeline.planning.plan_report import plan_lines  # only a plan needs it

    return plan_lines(document)


def prepare_with_card(
    settings: Settings, runner: Runner, *, plan_only: bool = False, start: Start | None = None
) -> dict[str, Any]:
    """Prepare a dataset, and draw the card of the version if one was built."""
    from larder.pipeline.preparing import prepare

    def start_with_card(execute: Execute) -> dict[str, Any]:
        def with_card(runner: Runner) -> dict[str, Any]:
            return _with_card(settings, execute(runner), runner)

        return start(with_card) if start else with_card(runner)

    return prepare(settings, runner, plan_only=plan_only, start=start_with_card)


def _with_card(settings: Settings, document: dict[str, Any], runner: Runner) -> dict[str, Any]:
    if document["status"] != "built":
        return document
    from larder.card.draw import Drawn, draw_card  # a fortieth of the time of an unchanged run

    drawn: Drawn = runner.run(draw_card, settings, document["version"])
    document |= {"seconds": round(runner.times.seconds(), 3), "stages": runner.times.stages()}
    if drawn.warning:
        document["warnings"].append({"code": "card", "message": drawn.warning})
        return document
    return {**document, "card": drawn.url}


PREPARE = Command("prepare", _PREPARE, _ARGUMENTS, _operation)
COMPACT = Command("compact", _COMPACT, _ARGUMENTS, partial(_operation, compact=True))
