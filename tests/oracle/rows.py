"""Rows: what a loader can be asked for, every pair of it, and random ones."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

Row = dict[str, Any]

SINGLE: dict[str, Sequence[Any]] = {
    "form": ["plain", "sorted", "encoded", "decoded", "built"],
    "place": ["directory", "s3", "gcs", "keep"],
    "order": ["none", "full", "full", "window", "lanes"],
    "seed": (0, 1, 7),
    "workers": (0, 1, 3, None),
    "resumed": (0, 2),  # workers of the run that goes on
    "batch": ("6", "12", "96", "per rank", "drop", "drop 12"),
    "rank": ["0/1", "0/2", "1/2", "0/3", "1/3", "2/3"],
    "choose": [
        *("all", "label", "key", "bytes", "numbers", "booleans"),
        *("limit", "tenth", "balanced", "weights", "mixture"),
    ],
    "columns": ["all", "few", "image", "text"],
    "decode": ["no", "yes", "list", "masks"],
    "transforms": ["no", "text", "image", "kept"],
    "map": ["no", "no", "crop", "noise", "keeping"],
    "collate": ["no", "no", "listed", "sized", "kept"],
    "bad": (False, True),
    "check": ["always", "once", "never"],
    "memory": (None, "1 kB", "1 MB"),
    "leave": ["no", "again", "skip"],
    "kill": (False, True),
    "fork": ["no", "reads", "writes"],
    "keep": ["whole", "views", "written"],
}
MIX: dict[str, Sequence[Any]] = {
    **SINGLE,
    "form": ("plain sorted", "plain decoded", "encoded plain", "decoded encoded built",
             "built sorted", "plain encoded decoded sorted"),
    "place": ["directory", "directory", "s3", "gcs"],
    "batch": ("6", "12", "24", "per rank", "drop"),
    "by": ("batch", "sample"),
    "length": (None, 9, 25),
}  # fmt: skip
DEFAULTS: Row = {name: values[0] for name, values in SINGLE.items()}


def valid(row: Row) -> Row:
    """The nearest row that no page refuses, nor says nothing about."""
    row = dict(row)

    def replace(name: str, values: str, other: str, where: bool) -> None:
        if where and row[name] in values.split():
            row[name] = other

    if "consumer" in row:
        _for_frameworks(row)
    forms = row["form"].split()
    cached = "decoded" in forms or "built" in forms
    replace("decode", "list masks" if len(forms) == 1 else "no list masks", "yes", cached)
    replace("columns", "text", "all", len(forms) > 1 or row["bad"])
    replace("decode", "no", "yes", row["columns"] == "image")
    replace("transforms", "text image kept", "no", len(forms) > 1)
    has_image = (row["decode"] != "no" or cached) and row["columns"] in ("all", "image")
    replace("map", "crop", "noise", not has_image)
    replace("transforms", "image kept", "no", not has_image)
    replace("transforms", "text", "no", "built" in forms or row["columns"] in ("image", "few"))
    replace("choose", "label balanced mixture", "key", "sorted" in forms)
    replace("choose", "tenth numbers", "all", row["bad"])
    replace("check", "once never", "always", row["bad"])
    replace("place", "s3 gcs keep", "directory", row["bad"])
    is_kept = "keeping" in row["map"] or "kept" in (row["transforms"], row["collate"])
    replace("keep", "written", "views", is_kept)
    return row


def _for_frameworks(row: Row) -> None:
    if row["leave"] == "skip":
        row["leave"] = "no"
    if row["consumer"] in ("tf", "keras"):  # columns of arrays, which are of one shape
        row["form"] = "plain decoded" if "by" in row else row["form"].replace("sorted", "plain")
        row |= {"columns": "image", "decode": "yes", "collate": "no", "transforms": "no"}
        row |= {"leave": "no", "kill": False, "keep": "whole"}
        row["map"] = "crop" if row["map"] == "crop" else "no"
    if row["consumer"] not in ("torch", "torch workers"):
        row["workers"] = row["resumed"] = 0


def pairs(row: Row) -> set[tuple[str, Any, str, Any]]:
    """Every two options of a row."""
    items = [(name, repr(value)) for name, value in sorted(row.items())]
    return {(*one, *other) for one, other in combinations(items, 2)}


def drawn(options: dict[str, Sequence[Any]], draw: random.Random) -> Row:
    """A random row."""
    return valid({name: draw.choice(values) for name, values in options.items()})


def covering(options: dict[str, Sequence[Any]], seed: int = 1) -> Iterator[Row]:
    """Rows with every pair of options that a valid row can have: of a few, the one with most."""
    draw = random.Random(seed)
    left: set[tuple[str, Any, str, Any]] = set()
    for _ in range(4000):
        left |= pairs(drawn(options, draw))
    while left:
        tried = [drawn(options, draw) for _ in range(40)]
        row = max(tried, key=lambda each: len(pairs(each) & left))
        if found := pairs(row) & left:
            left -= found
            yield row


def _row(**options: Any) -> Row:
    return valid({**DEFAULTS, **options})


FRAMEWORKS_FIXED: tuple[Row, ...] = (
    _row(consumer="torch", order="full", workers=2, leave="again"),
    _row(consumer="torch workers", order="full", rank="1/2", workers=3, leave="again"),
    _row(consumer="torch workers", order="full", resumed=2, bad=True, batch="12", decode="yes"),
    _row(consumer="plain", form="decoded", order="window", leave="again"),
    _row(consumer="tf", order="full", rank="1/2", map="crop"),
    _row(consumer="keras", order="full", batch="12"),
    _row(consumer="torch workers", form="plain decoded", by="sample", length=25, order="full"),
    _row(consumer="keras", form="plain decoded", by="batch", length=9, order="full"),
)
"""The rows of every push that frameworks read."""


FIXED: tuple[Row, ...] = (
    _row(),
    _row(order="full", rank="1/2", leave="again"),
    _row(order="full", rank="2/3", batch="12", choose="weights", map="noise"),
    _row(order="window", rank="0/2", decode="yes", map="crop", leave="skip"),
    _row(order="lanes", batch="12", rank="1/2", decode="yes", columns="few", keep="written"),
    _row(order="full", batch="drop", rank="0/3", choose="balanced", collate="sized"),
    _row(order="full", batch="96", rank="2/3", transforms="text", keep="views"),
    _row(order="full", batch="per rank", rank="1/3", choose="tenth", collate="listed"),
    _row(form="sorted", order="window", rank="0/2", choose="key", decode="masks"),
    _row(form="sorted", order="full", decode="list", transforms="image", keep="written"),
    _row(form="sorted", batch="drop 12", rank="1/3", columns="text", transforms="text"),
    _row(form="encoded", order="full", rank="1/2", choose="label", keep="views"),
    _row(form="encoded", order="lanes", batch="12", rank="0/3", decode="yes", map="crop"),
    _row(form="encoded", order="full", choose="mixture", columns="text", map="noise", fork="reads"),
    _row(form="decoded", order="full", rank="1/2", choose="bytes", keep="written", leave="skip"),
    _row(form="decoded", order="window", rank="2/3", map="crop", batch="12", collate="kept"),
    _row(form="built", order="full", rank="0/2", choose="numbers", columns="few", leave="again"),
    _row(form="built", order="full", map="keeping", rank="1/3", keep="views", choose="limit"),
    _row(order="full", bad=True, rank="1/2", batch="12", decode="yes"),
    _row(form="decoded", bad=True, map="noise", choose="weights", transforms="kept"),
    _row(place="s3", order="window", rank="1/2", check="once", memory="1 kB"),
    _row(place="keep", order="full", rank="0/2", decode="yes", check="never"),
    _row(form="decoded", place="s3", order="full", rank="2/3", batch="12"),
    _row(order="full", workers=2, rank="1/2", decode="yes", kill=True, keep="written"),
    _row(form="decoded", workers=2, fork="writes", keep="views", transforms="kept"),
    _row(order="full", workers=2, decode="yes", collate="kept", leave="again"),
    _row(form="plain decoded", by="sample", length=100, most=100, workers=2, columns="image"),
    _row(form="plain decoded", by="batch", length=200, most=190, workers=2, columns="image"),
    _row(form="plain sorted", by="sample", length=25, order="full", map="noise", leave="skip"),
    _row(form="encoded built", by="batch", length=None, order="full", rank="2/3", leave="again"),
)
"""The rows of every push: without other frameworks, and quick."""
