"""``larder prepare`` and ``larder compact``: from a source to an experiment config."""

from __future__ import annotations

from functools import partial
from typing import Any

from larder.cli.arguments import add_dataset, add_output, add_plan
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
_ARGUMENTS = (add_dataset, add_plan, add_output)


def _operation(**flags: Any) -> Operation:
    from larder.pipeline.settings import load_settings

    loaded = load_settings(**flags)
    # Only now, so that invalid input is refused before slow imports.
    from larder.card.prepare_with_card import prepare_with_card
    from larder.pipeline.planning.plan_report import plan_lines
    from larder.pipeline.run_report import run_lines

    compose = partial(prepare_with_card, loaded)
    of_cluster, source = loaded.cluster, loaded.dataset.source
    batches = of_cluster.runner, of_cluster.storage, of_cluster.copy_.memory, source
    return Operation(loaded.batches_at_once, compose, run_lines, plan_lines, *batches)


PREPARE = Command("prepare", _PREPARE, _ARGUMENTS, _operation)
COMPACT = Command("compact", _COMPACT, _ARGUMENTS, partial(_operation, compact=True))
