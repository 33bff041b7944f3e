"""``larder clean``: deletes versions, segments and files that nothing needs."""

from __future__ import annotations

from functools import partial
from typing import Any

from larder.cli.arguments import Parser, add_name, add_plan, add_storage
from larder.cli.command import Command, Operation

_DESCRIPTION = """\
Delete versions that are neither among the newest --keep nor named by a tag or a lease, and with
them what no other version needs. It takes two runs: the first announces what may go, the second,
after the grace time, deletes of it what nothing needs by then. With --plan, show what would be
done.\
"""


def _add_policy(parser: Parser) -> None:
    add = parser.add_argument
    keep = "number of the newest versions to keep, 1 or more"
    add("--keep", metavar="N", type=int, required=True, help=keep)
    older = "delete only versions older than this, such as 30d (default: 0h)"
    add("--older-than", metavar="TIME", default="0h", help=older)
    grace = "time between announcing and deleting (default: 24h)"
    add("--grace", metavar="TIME", default="24h", help=grace)
    mirror = "also delete mirrored objects that no remaining version was made from, if they are in"
    unless = " the source, too, or the dataset file excludes them"
    add("--mirror", action="store_true", help=mirror + unless)


def _operation(
    dataset: str, keep: int, older_than: str, grace: str, *, mirror: bool, **where: Any
) -> Operation:
    from larder.catalog.cleaning import CleanSettings, clean, clean_lines
    from larder.catalog.due import read_policy
    from larder.catalog.stored_dataset import load_described, load_place
    from larder.config.models.copy_config import RunnerConfig

    policy = read_policy(keep, older_than, grace)
    place = load_place(dataset, **where)
    described = load_described(dataset, **where) if mirror else None
    compose = partial(clean, CleanSettings(place, policy, mirror, described))
    batches = RunnerConfig(), place.cluster.storage, place.cluster.copy_.memory
    return Operation(1, compose, clean_lines, clean_lines, *batches)


CLEAN = Command("clean", _DESCRIPTION, (add_name, _add_policy, add_storage, add_plan), _operation)
