"""``larder prepare`` and ``larder compact``: from a source to an experiment config."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from larder.cli.arguments import Parser, add_output, add_plan, dataset_parser
from larder.cli.command import Command, Operation

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


def _parser(prog: str, description: str) -> Parser:
    parser = dataset_parser(prog, description)
    add_plan(parser)
    add_output(parser)
    return parser


def _operation(
    dataset: str,
    cluster: str = "local",
    *,
    settings: Sequence[str] = (),
    config_dir: str = "configs",
    output: str | None = None,
    compact: bool,
) -> Operation:
    from larder.pipeline.settings import load_settings

    loaded = load_settings(
        dataset,
        cluster,
        config_dir=Path(config_dir),
        settings=settings,
        output=Path(output) if output else None,
        compact=compact,
    )
    # Only now, so that invalid input is refused before slow imports.
    from larder.card.prepare import prepare_with_card
    from larder.pipeline.planning.plan_report import plan_lines
    from larder.pipeline.run_report import run_lines

    compose = partial(prepare_with_card, loaded)
    of_cluster, source = loaded.cluster, loaded.dataset.source
    batches = of_cluster.runner, of_cluster.storage, of_cluster.copy_.memory, source
    return Operation(loaded.workers, compose, run_lines, plan_lines, *batches)


PREPARE = Command(
    "prepare", partial(_parser, description=_PREPARE), partial(_operation, compact=False)
)
COMPACT = Command(
    "compact", partial(_parser, description=_COMPACT), partial(_operation, compact=True)
)
