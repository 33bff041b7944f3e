"""``larder ls``, ``show``, ``diff``, ``du``, ``trace`` and ``lease``: published versions.

The commands need a storage and no dataset file. They write nothing there except leases.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from larder.cli.arguments import Parser, add_storage, parser
from larder.cli.output import DONE, print_json, print_text
from larder.cli.signals import loading
from larder.errors import printable
from larder.packages import require

_STORAGE = ("storage", "cluster", "settings", "config_dir")
_VERSION = "the version is an ID, at least four of its first digits, or a tag (default: latest)"


@dataclass(frozen=True, slots=True)
class Question:
    """A command that needs a storage alone.

    Attributes:
        ask: Name of the function below `larder.catalog` that returns the JSON document of a
            dataset. The function with ``_lines`` after this name formats the document.
        ask_all: Name of such a function for a whole storage, if the dataset may be left out.
        of_version: Whether the dataset has a version, ``DATASET@VERSION``.
        add: Adds further arguments to a parser.
    """

    name: str
    description: str
    ask: str
    ask_all: str = ""
    of_version: bool = True
    add: Callable[[Parser], None] = lambda _: None

    def main(self, arguments: Sequence[str] | None = None, prog: str = "") -> int:
        """Run the command; returns the exit status."""
        flags = parser(prog or f"larder {self.name}", self.description)
        if self.ask_all:
            help_ = "default: all of the storage"
            flags.add_argument("dataset", metavar="DATASET", nargs="?", help=help_)
        elif self.of_version:
            flags.add_argument("dataset", metavar="DATASET[@VERSION]", help=_VERSION)
        else:
            flags.add_argument("dataset", metavar="DATASET", help="name of the dataset")
        self.add(flags)
        add_storage(flags)
        given = vars(flags.parse_args(arguments))
        where = {name: given.pop(name) for name in _STORAGE}
        as_json, quiet, dataset = (given.pop(name) for name in ("json", "quiet", "dataset"))
        with loading():
            require("prepare")
            from larder.catalog.place import load_place, load_storage

            ask = f"larder.catalog.{self.ask if dataset else self.ask_all}"
            answer, lines = resolve_name(ask), resolve_name(f"{ask}_lines")
        if not dataset:
            document = answer(load_storage(**where))
        elif self.ask_all or not self.of_version:
            document = answer(load_place(dataset, **where), **given)
        else:
            name, _, version = dataset.partition("@")
            document = answer(load_place(name, **where), version or "latest", **given)
        keys = document.pop("keys", None)
        if as_json and keys is None:
            print_json(document, hint=DONE)
        elif as_json:
            _print_with_keys(document, keys)
        elif not quiet:
            print_text("\n".join([*lines(document)]), hint=DONE)
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


LS = Question(
    "ls",
    "List the datasets of a storage, or the versions of one: since when there are, how large they\n"
    "are, which tags name them, and what changed with each.",
    "history:list_versions",
    "history:list_datasets",
)
DU = Question(
    "du",
    "Count the bytes of a storage by dataset, or of a dataset by place, version and segment.",
    "usage:usage",
    "usage:usage_of_all",
)
DIFF = Question(
    "diff",
    "Compare two versions of a dataset: which samples were added, removed, changed, relabelled or\n"
    "moved between splits. Segments that both have are not compared.",
    "difference:diff",
    add=_add_other,
)
SHOW = Question(
    "show",
    "Show a version: splits, classes, segments, files, where it comes from, and which runs\n"
    "published it or moved a tag to it.",
    "contents:show",
)
TRACE = Question(
    "trace",
    "Follow a sample of a version: its shard and offset, the objects that it was packed from, its\n"
    "class, and since which version it is the same. loader.keys(epoch, batch) names the samples\n"
    "of a batch of training.",
    "trace:trace",
    add=_add_key,
)
LEASE = Question(
    "lease",
    "Keep a version from being cleaned for some days, or end that. Without VERSION and --drop,\n"
    "show all leases: those of emitted configs, of runs in progress, and those that were added.",
    "leasing:lease",
    of_version=False,
    add=_add_lease,
)
