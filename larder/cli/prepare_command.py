"""``larder prepare``, ``compact`` and ``refresh``: from a source to an experiment config."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from larder.cli.arguments import Parser, add_cluster, add_dataset, add_output, add_plan
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
_REFRESH = """\
List the sources of datasets, and prepare those that have changed, one after the other. A dataset
that fails stops no other; the exit status says that one did.\
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


def _add_datasets(parser: Parser) -> None:
    described = "names of files in configs/datasets (default: all)"
    parser.add_argument("datasets", metavar="DATASET", nargs="*", default=[], help=described)


def _refresh(datasets: Sequence[str], **flags: Any) -> Operation:
    from larder.config.load import load_cluster, names
    from larder.config.models.locations import located
    from larder.config.urls import directory
    from larder.jobs.step_runner import runner_batches
    from larder.pipeline.preparing import refresh, refresh_lines
    from larder.pipeline.settings import load_settings

    folder = directory(flags["config_dir"], "--config-dir")
    described = load_cluster(folder, flags["cluster"], flags["settings"], os.environ)
    chosen = datasets or names(folder, "datasets")
    loaders = {name: partial(load_settings, name, **flags) for name in chosen}
    count = runner_batches(described.runner, described.copy_)
    compose = partial(refresh, loaders, run=prepare_with_card)
    storage = located(described.storage, os.environ, "cluster.storage.url")
    batches = described.runner, storage, described.copy_.memory
    return Operation(count, compose, refresh_lines, refresh_lines, *batches)


PREPARE = Command("prepare", _PREPARE, _ARGUMENTS, _operation)
COMPACT = Command("compact", _COMPACT, _ARGUMENTS, partial(_operation, compact=True))
REFRESH = Command("refresh", _REFRESH, (_add_datasets, add_cluster), _refresh)
