"""``larder refresh``: prepares the datasets whose sources have changed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from larder.cli.arguments import Parser, add_cluster
from larder.cli.command import Command, Operation
from larder.cli.prepare_command import prepare_with_card

_DESCRIPTION = """\
List the sources of datasets, and prepare those that have changed, one after the other. A dataset
that fails stops no other; the exit status says that one did.\
"""


def _add_datasets(parser: Parser) -> None:
    described = "names of files in configs/datasets (default: all)"
    parser.add_argument("datasets", metavar="DATASET", nargs="*", default=[], help=described)


def _operation(datasets: Sequence[str], **flags: Any) -> Operation:
    from larder.config.load import load_cluster, names
    from larder.config.models.locations import located
    from larder.config.urls import directory
    from larder.jobs.step_runner import runner_batches
    from larder.pipeline.refreshing import refresh, refresh_lines
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


REFRESH = Command("refresh", _DESCRIPTION, (_add_datasets, add_cluster), _operation)
