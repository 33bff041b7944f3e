"""Commands that run no batches: ``larder ls``, ``show``, ``diff``, ``du``, ``trace``, ``lease``,
``tag``, ``clean``, ``advise``, ``card`` and ``emit``.

The first six need a storage and no dataset file, and write nothing there except leases. ``tag`` and
``clean`` may be flow runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from larder.cli.arguments import (
    Add,
    Parser,
    add_dataset,
    add_name,
    add_output,
    add_plan,
    add_storage,
    add_version,
    parser,
)
from larder.cli.command import Command, Operation
from larder.cli.output import DONE, print_json, print_text
from larder.cli.signals import loading
from larder.errors import printable
from larder.packages import require

if TYPE_CHECKING:
    from larder.catalog.stored_dataset import StoredDataset

Answer = tuple[Callable[[], dict[str, Any]], Callable[[Mapping[str, Any]], Iterable[str]]]
"""A function that makes a JSON document, and a function that formats it for people."""

_CLEAN = """\
Delete versions that are neither among the newest --keep nor named by a tag or a lease, and with
them what no other version needs. It takes two runs: the first announces what may go, the second,
after the grace time, deletes of it what nothing needs by then. With --plan, show what would be
done.\
"""

_TAG = """\
Make the tag NAME name a version, such as one before the current one. Runs publish versions, and
leave a pinned tag where it is. Without VERSION, show which version it names.\
"""


@dataclass(frozen=True, slots=True)
class Question:
    """A command that prints an answer.

    Attributes:
        adds: Functions that add its arguments to a parser.
        load: Reads the configuration that the arguments name, and imports the answer.
    """

    name: str
    description: str
    adds: tuple[Add, ...]
    load: Callable[..., Answer]

    def main(self, arguments: Sequence[str] | None = None, prog: str = "") -> int:
        flags = parser(prog or f"larder {self.name}", self.description, *self.adds)
        parameters = vars(flags.parse_args(arguments))
        as_json, quiet = parameters.pop("json"), parameters.pop("quiet")
        with loading():
            require("prepare")
            answer, lines = self.load(**parameters)
        document = answer()
        keys = document.pop("keys", None)
        if as_json and keys is None:
            print_json(document, hint=DONE)
        elif as_json:
            _print_with_keys(document, keys)
        elif not quiet:
            print_text("\n".join(lines(document)), hint=DONE)
            for lot in keys or ():
                print_text("\n".join(map(_key_line, lot)), hint=DONE)
        return 0


Lots = Iterator[list[dict[str, Any]]]


def _print_with_keys(document: Mapping[str, Any], lots: Lots) -> None:
    """Print a document with a list ``keys`` at its end, which may be larger than memory."""
    head = json.dumps(document, indent=2).removesuffix("\n}")
    print_text(f'{head},\n  "keys": [', hint=DONE)
    between = ""
    for lot in lots:
        print_text(between + ",\n".join(f"    {json.dumps(row)}" for row in lot), hint=DONE)
        between = "    ,\n"
    print_text("  ]\n}", hint=DONE)


def _key_line(row: Mapping[str, Any]) -> str:
    """Format a sample that differs, with its previous split or class."""
    line = printable(f"{row['kind']}  {row['split']}  {row['key']}")
    if row["kind"] == "moved":
        return f"{line}  (from {row['split_before']})"
    if row["kind"] == "relabelled":
        return printable(f"{line}  ({row['class_before']} to {row['class']})")
    return line


def _add_dataset_or_all(flags: Parser) -> None:
    flags.add_argument("dataset", metavar="DATASET", nargs="?", help="default: all of the storage")


def _add_stored_version(flags: Parser) -> None:
    which = "the version is an ID, at least four of its first digits, or a tag (default: latest)"
    flags.add_argument("version", metavar="DATASET[@VERSION]", help=which)


def _add_other(flags: Parser) -> None:
    flags.add_argument(
        "after", metavar="VERSION", nargs="?", default="latest", help="the other (default: latest)"
    )
    flags.add_argument("--keys", action="store_true", help="list the samples that differ")


def _add_key(flags: Parser) -> None:
    flags.add_argument("key", metavar="KEY", help="the key of a sample, without extension")
    flags.add_argument("--to", metavar="DIR", help="write its parts to this directory")


def _add_lease(flags: Parser) -> None:
    add = flags.add_argument
    add("version", metavar="VERSION", nargs="?", help="an ID, its first digits, or a tag")
    add("--for", metavar="WHO", dest="holder", help="whom or what it is for, as others see it")
    add("--days", metavar="N", type=int, default=30, help="for how long (default: 30)")
    add("--drop", metavar="NAME", action="append", default=[], help="end a lease; may be repeated")


def _add_force(flags: Parser) -> None:
    instead = "replace what the template sets in the place of the data, instead of refusing it"
    flags.add_argument("--force", action="store_true", help=instead)


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


def _add_tag(parser: Parser) -> None:
    add = parser.add_argument
    add("name", metavar="NAME", help="the tag, such as latest")
    add("version", metavar="VERSION", nargs="?", help="an ID, its first digits, or a tag")
    add("--delete", action="store_true", help="delete the tag; its version stays")
    pins = parser.add_mutually_exclusive_group()
    pin, unpin = "from now on runs leave the tag where it is", "from now on runs move it again"
    pins.add_argument("--pin", action="store_true", default=None, help=pin)
    pins.add_argument("--unpin", action="store_false", dest="pin", help=unpin)


def _split(address: str) -> tuple[str, str]:
    dataset, _, version = address.partition("@")
    return dataset, version or "latest"


def _stored(address: str, where: Mapping[str, Any]) -> tuple[StoredDataset, str]:
    from larder.catalog.stored_dataset import load_place

    dataset, version = _split(address)
    return load_place(dataset, **where), version


def _ls(dataset: str | None, **where: Any) -> Answer:
    from larder.catalog import history
    from larder.catalog.stored_dataset import load_place, load_storage

    if dataset is None:
        return partial(history.list_datasets, load_storage(**where)), history.list_datasets_lines
    place = load_place(dataset, **where)
    return partial(history.list_versions, place), history.list_versions_lines


def _du(dataset: str | None, **where: Any) -> Answer:
    from larder.catalog import usage
    from larder.catalog.stored_dataset import load_place, load_storage

    if dataset is None:
        return partial(usage.usage_of_all, load_storage(**where)), usage.usage_of_all_lines
    return partial(usage.usage, load_place(dataset, **where)), usage.usage_lines


def _show(version: str, **where: Any) -> Answer:
    from larder.catalog.show import show, show_lines

    return partial(show, *_stored(version, where)), show_lines


def _diff(version: str, after: str, *, keys: bool, **where: Any) -> Answer:
    from larder.catalog.version_difference import diff, diff_lines

    return partial(diff, *_stored(version, where), after, keys), diff_lines


def _trace(version: str, key: str, to: str | None, **where: Any) -> Answer:
    from larder.catalog.trace import trace, trace_lines

    return partial(trace, *_stored(version, where), key, to), trace_lines


def _lease(
    dataset: str,
    version: str | None,
    holder: str | None,
    days: int,
    drop: Sequence[str],
    **where: Any,
) -> Answer:
    from larder.catalog.leasing import lease, lease_lines
    from larder.catalog.stored_dataset import load_place

    return partial(lease, load_place(dataset, **where), version, holder, days, drop), lease_lines


def _advise(**flags: Any) -> Answer:
    from larder.pipeline.advise import advise, advise_lines
    from larder.pipeline.settings import load_settings

    return partial(advise, partial(load_settings, **flags)), advise_lines


def _card(version: str, **flags: Any) -> Answer:
    require("card")
    from larder.card.draw import card, card_lines
    from larder.pipeline.settings import load_settings

    dataset, version = _split(version)
    return partial(card, load_settings(dataset, **flags, reads_source=False), version), card_lines


def _emit(version: str, *, force: bool, **flags: Any) -> Answer:
    from larder.pipeline.configs import emit, emit_lines
    from larder.pipeline.settings import load_settings

    dataset, version = _split(version)
    settings = load_settings(dataset, **flags, reads_source=False, replaces=force)
    return partial(emit, settings, version), emit_lines


def _clean(
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


def _tag(
    dataset: str,
    name: str,
    version: str | None,
    *,
    delete: bool,
    pin: bool | None,
    **where: Any,
) -> Operation:
    from larder.catalog.stored_dataset import load_place
    from larder.catalog.tagging import TagSettings, tag, tag_lines
    from larder.config.models.copy_config import RunnerConfig

    place = load_place(dataset, **where)
    compose = partial(tag, TagSettings(place, name, version, delete, pin))
    batches = RunnerConfig(), place.cluster.storage, place.cluster.copy_.memory
    return Operation(1, compose, tag_lines, tag_lines, *batches)


LS = Question(
    "ls",
    "List the datasets of a storage, or the versions of one: since when there are, how large they\n"
    "are, which tags name them, and what changed with each.",
    (_add_dataset_or_all, add_storage),
    _ls,
)
DU = Question(
    "du",
    "Count the bytes of a storage by dataset, or of a dataset by place, version and segment.",
    (_add_dataset_or_all, add_storage),
    _du,
)
DIFF = Question(
    "diff",
    "Compare two versions of a dataset: which samples were added, removed, changed, relabelled or\n"
    "moved between splits. Segments that both have are not compared.",
    (_add_stored_version, _add_other, add_storage),
    _diff,
)
SHOW = Question(
    "show",
    "Show a version: splits, classes, segments, files, where it comes from, and which runs\n"
    "published it or moved a tag to it.",
    (_add_stored_version, add_storage),
    _show,
)
TRACE = Question(
    "trace",
    "Follow a sample of a version: its shard and offset, the objects that it was packed from, and\n"
    "its class. loader.keys(epoch, batch) names the samples of a batch of training.",
    (_add_stored_version, _add_key, add_storage),
    _trace,
)
LEASE = Question(
    "lease",
    "Keep a version from being cleaned for some days, or end that. Without VERSION and --drop,\n"
    "show all leases: those of emitted configs, of runs in progress, and those that were added.",
    (add_name, _add_lease, add_storage),
    _lease,
)
ADVISE = Question(
    "advise",
    "Show how training could reach a dataset: every delivery, the rules that speak for or against\n"
    "it, when training could start, and what it moves, costs and needs. Of the version that\n"
    "latest names, or else of the plan of a run, for which the source is listed. Nothing is\n"
    "written.",
    (add_dataset,),
    _advise,
)
CARD = Question(
    "card",
    "Draw the data card of a published version again: one HTML page with its splits, classes,\n"
    "sizes, some samples and where it comes from. It is written to versions/ID/card/ in the\n"
    "storage.",
    (add_version,),
    _card,
)
EMIT = Question(
    "emit",
    "Write the experiment config of a published version, as the run that prepared it did: for\n"
    "another cluster that sees the same storage, another template, or an older version. Nothing\n"
    "is prepared, and the source is not read.",
    (add_version, add_output, _add_force),
    _emit,
)
CLEAN = Command("clean", _CLEAN, (add_name, _add_policy, add_storage, add_plan), _clean)
TAG = Command("tag", _TAG, (add_name, _add_tag, add_storage), _tag)
