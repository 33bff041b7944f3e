"""``larder copy`` and ``larder prune``: from a source to a storage, without a dataset."""

from __future__ import annotations

from functools import partial
from typing import Any

from larder.cli.arguments import Parser, add_places
from larder.cli.command import Command, Operation

_COPY = """\
Copy every object below SOURCE to STORAGE/KEY: what is there already, with the same digest or with a
receipt of an earlier copy, is not copied again. Every copy is verified. If a run is killed, run the
same command again to continue. Objects that are no longer in the source are left alone.\
"""
_PRUNE = """\
Delete from STORAGE what larder copy has written there from SOURCE and is no longer in SOURCE. It is
planned first: nothing is deleted if the source is empty or cannot be listed completely, or if more
would be deleted than --max-delete allows.\
"""


def _add_verify(parser: Parser) -> None:
    described = "how copies are checked: digest or size (default: copy.verify, which is digest)"
    parser.add_argument("--verify", metavar="HOW", help=described)


def _add_max_delete(parser: Parser) -> None:
    described = "delete nothing if it would be more than N objects (default: 1,000, and at most 10"
    parser.add_argument(
        "--max-delete", metavar="N", type=int, help=f"{described} percent of the copies)"
    )


def _copy(**flags: Any) -> Operation:
    from larder.copy.copy_settings import load_copy_settings
    from larder.copy.copying import copy, copy_lines

    settings = load_copy_settings(**flags)
    batches = settings.runner, settings.storage, settings.limits.memory, settings.source
    return Operation(
        settings.batches_at_once, partial(copy, settings), copy_lines, copy_lines, *batches
    )


def _prune(max_delete: int | None, **flags: Any) -> Operation:
    from larder.config.models.copy_config import RunnerConfig
    from larder.copy.copy_settings import load_copy_settings
    from larder.copy.pruning import PruneSettings, prune, prune_lines

    places = load_copy_settings(**flags)
    compose = partial(prune, PruneSettings(places, max_delete))
    batches = RunnerConfig.model_construct(), places.storage, places.limits.memory
    return Operation(1, compose, prune_lines, prune_lines, *batches)


COPY = Command("copy", _COPY, (add_places, _add_verify), _copy)
PRUNE = Command("prune", _PRUNE, (add_places, _add_max_delete), _prune)
