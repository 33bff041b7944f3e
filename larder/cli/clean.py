"""``larder clean``: deletes versions, segments and files that nothing needs."""

from __future__ import annotations

from functools import partial
from typing import Any

from larder.cli.arguments import Parser, add_plan, stored_parser
from larder.cli.command import Command, Operation

_DESCRIPTION = """\
Delete versions that are neither among the newest --keep nor named by a tag or a lease, and with
them what no other version needs. It takes two runs: the first announces what may go, the second,
after the grace time, deletes of it what nothing needs by then. With --plan, show what would be
done.\
"""


def _parser(prog: str) -> Parser:
    result = stored_parser(prog, _DESCRIPTION)
    add = result.add_argument
    add(
        "--keep", metavar="N", type=int, required=True, help="keep the N newest versions, 1 or more"
    )
    add(
        "--older-than", metavar="TIME", default="0h", help="of the others, those older, such as 30d"
    )
    add("--grace", metavar="TIME", default="24h", help="between announcing and deleting (24h)")
    add(
        "--mirror",
        action="store_true",
        help="also delete mirrored objects that no version was made from that stays, if they are"
        " in the source, too, or the dataset file excludes them",
    )
    add_plan(result)
    return result


def _operation(
    dataset: str,
    keep: int,
    older_than: str = "0h",
    grace: str = "24h",
    *,
    mirror: bool = False,
    **where: Any,
) -> Operation:
    from larder.catalog.clean import CleanSettings, clean, clean_lines
    from larder.catalog.due import read_policy
    from larder.catalog.place import load_described, load_place
    from larder.config.models.copying import RunnerConfig

    policy = read_policy(keep, older_than, grace)
    place = load_place(dataset, **where)
    described = load_described(dataset, **where) if mirror else None
    compose = partial(clean, CleanSettings(place, policy, mirror, described))
    batches = RunnerConfig(), place.cluster.storage, place.cluster.copy_.memory
    return Operation(1, compose, clean_lines, clean_lines, *batches)


CLEAN = Command("clean", _parser, _operation)
