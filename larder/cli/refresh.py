"""``larder refresh``: prepares the datasets whose sources have changed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from larder.cli.arguments import Parser, add_cluster, parser
from larder.cli.command import Command, Operation

_DESCRIPTION = """\
List the sources of datasets, and prepare those that have changed, one after the other. A dataset
that fails stops no other; the exit status says that one did.\
"""


def _parser(prog: str) -> Parser:
    result = parser(prog, _DESCRIPTION)
    result.add_argument(
        "datasets",
        metavar="DATASET",
        nargs="*",
        help="CONFIG_DIR/datasets/DATASET.yaml (default: all)",
    )
    add_cluster(result)
    return result


def _operation(
    datasets: Sequence[str] = (),
    cluster: str = "local",
    *,
    settings: Sequence[str] = (),
    config_dir: str = "configs",
) -> Operation:
    import os

    from larder.card.prepare import prepare_with_card
    from larder.config.load import load_cluster, names
    from larder.config.located import located
    from larder.jobs.runner import workers
    from larder.pipeline.refresh import refresh, refresh_lines
    from larder.pipeline.settings import load_settings

    folder = Path(config_dir)
    described = load_cluster(folder, cluster, settings, os.environ)
    load = partial(load_settings, cluster=cluster, config_dir=folder, settings=settings)
    loaders = {name: partial(load, name) for name in datasets or names(folder, "datasets")}
    count = workers(described.runner, described.copy_)
    compose = partial(refresh, loaders, run=prepare_with_card)
    storage = located(described.storage, os.environ, "cluster.storage.url")
    batches = described.runner, storage, described.copy_.memory
    return Operation(count, compose, refresh_lines, refresh_lines, *batches)


REFRESH = Command("refresh", _parser, _operation)
