"""A source that changes at random, and a plain model of what a version of it has to be."""

from __future__ import annotations

import hashlib
import io
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from hypothesis import strategies as st
from PIL import Image

FOLDERS = ("t", "v")
CLASSES = ("bee", "cat", "ant", "élan", "dog")
EXTS = ("txt", "png", "json")
NAMES = 6
LABEL_FILE = "labels.txt"
BAD = b"bad-"

SPLITS: Mapping[str, Mapping[str, Any]] = {
    "one": {"train": "**"},
    "folders": {"train": "t/**", "validation": "v/**"},
    "swapped": {"validation": "t/**", "train": "**"},
    "classes": {"test": "*/cat/*", "train": ["t/**"], "validation": "**"},
    "hashed": {"by": "hash", "seed": 7, "fractions": {"train": 0.6, "validation": 0.4}},
    "hashed more": {"by": "hash", "seed": 7, "fractions": {"train": 0.4, "validation": 0.6}},
    "hashed anew": {"by": "hash", "seed": 8, "fractions": {"validation": 0.5, "train": 0.5}},
}
OPTIONS: Mapping[str, tuple[Any, ...]] = {
    "splits": tuple(SPLITS),
    "labels": ("folder", "folder", "file", "pinned", "none"),
    "mirror": (False, True),
    "validate": ("header", "decode"),
    "on_bad_sample": ("skip", "skip", "skip", "fail"),
    "cache": (None, "encoded", "decoded"),
    "mode": ("append", "append", "append", "rebuild"),
    "removals": ("repack", "omit"),
    "bytes": (4_000, 7_000, 150_000_000),
    "shuffle_seed": (None, 1, 2),
    "count_min": (None, None, 3),
    "format": ("webdataset", "webdataset", "columns"),
}
SHAPE = ("bytes", "shuffle_seed", "count_min", "format")
INPUTS = tuple(name for name in OPTIONS if name not in ("mirror", "mode", "removals"))

Parts = Mapping[str, bytes]


@dataclass(frozen=True)
class State:
    """The objects of a source, what its label file says, and the options of the dataset.

    ``labels`` are classes by sample key, where they differ from the folder.
    """

    objects: Mapping[str, bytes]
    labels: Mapping[str, str]
    options: Mapping[str, Any]

    @property
    def keys(self) -> list[str]:
        return sorted(self.objects)

    def samples(self) -> dict[str, dict[str, bytes]]:
        """The parts of every sample, by key and extension."""
        found: dict[str, dict[str, bytes]] = {}
        for key in self.keys:
            sample, _, ext = key.partition(".")
            found.setdefault(sample, {})[ext] = self.objects[key]
        return found

    def label_file(self) -> bytes:
        names = {**{key: key.split("/")[1] for key in self.samples()}, **self.labels}
        return "".join(f"{key} {name}\n" for key, name in sorted(names.items())).encode()


@dataclass(frozen=True)
class Expected:
    """What a version has to be.

    Attributes:
        samples: By split and key: the name of the class, and the parts.
        bad: The parts of samples that are left out.
        names: The names of the classes that occur.
    """

    samples: Mapping[str, Mapping[str, tuple[str | None, Parts]]]
    bad: Mapping[str, Parts]
    names: frozenset[str]

    def parts(self) -> dict[str, Parts]:
        return {key: parts for own in self.samples.values() for key, (_, parts) in own.items()}


def is_bad(parts: Parts) -> bool:
    return any(data.startswith(BAD) for data in parts.values())


def split_names(options: Mapping[str, Any]) -> tuple[str, ...]:
    rule = SPLITS[options["splits"]]
    return tuple(rule.get("fractions", rule))


def split_of(key: str, options: Mapping[str, Any]) -> str:
    """Written down again, not taken from larder."""
    top, name, _ = key.split("/")
    match options["splits"]:
        case "one":
            return "train"
        case "folders":
            return "train" if top == "t" else "validation"
        case "swapped":
            return "validation" if top == "t" else "train"
        case "classes":
            return "test" if name == "cat" else "train" if top == "t" else "validation"
    rule = SPLITS[options["splits"]]
    secret = hashlib.sha256(str(rule["seed"]).encode()).digest()
    digest = hashlib.blake2b(key.encode(), digest_size=8, key=secret, person=b"larder split")
    share = int.from_bytes(digest.digest(), "big") / 2**64
    first, second = rule["fractions"]
    return str(first if share < rule["fractions"][first] else second)


def expected(state: State) -> Expected:
    options = state.options
    samples: dict[str, dict[str, tuple[str | None, Parts]]] = {
        split: {} for split in split_names(options)
    }
    bad: dict[str, Parts] = {}
    names = set()
    for key, parts in state.samples().items():
        split, label = split_of(key, options), key.split("/")[1]
        if options["labels"] == "none":
            name = None
        elif options["labels"] == "file" and split == "validation":
            name = state.labels.get(key, label)
        else:
            name = label
        if name:
            names.add(name)
        if is_bad(parts):
            bad[key] = parts
        else:
            samples[split][key] = (name, parts)
    return Expected(samples, bad, frozenset(names))


def fields(state: State) -> dict[str, Any]:
    """The fields of the dataset file."""
    options = state.options
    labels: dict[str, Any] | None = {"from": "folder"}
    if options["labels"] == "none":
        labels = None
    elif options["labels"] == "pinned":
        labels = {"classes": sorted(CLASSES, reverse=True)}
    elif options["labels"] == "file" and "validation" in split_names(options):
        labels = {"files": {"validation": LABEL_FILE}}
    shards = {name: options[name] for name in SHAPE}
    return {
        "splits": dict(SPLITS[options["splits"]]),
        "labels": labels,
        "mirror": options["mirror"],
        "shards": shards,
        "validate": "decode" if options["cache"] == "decoded" else options["validate"],
        "on_bad_sample": options["on_bad_sample"],
        "cache": {"records": options["cache"]} if options["cache"] else None,
        "growth": {"mode": options["mode"], "removals": options["removals"]},
    }


class Edit(NamedTuple):
    """A change of the source; the numbers choose among what is there."""

    kind: str
    which: int
    how: int


class Step(NamedTuple):
    """Some changes, and the runs that follow them.

    Attributes:
        edits: The changes.
        stop: Number of writes after which the first run is stopped; None if it is not.
        abandoned: Whether no other run follows the one that was stopped.
        compact: Whether the run compacts.
    """

    edits: tuple[Edit, ...]
    stop: int | None = None
    abandoned: bool = False
    compact: bool = False


@dataclass(frozen=True)
class History:
    """A first state and the steps that follow.

    Attributes:
        first: What is prepared first.
        steps: The rest.
        limits: The maximum number of segments, of ranges in version.json, of patterns without a
            list, and of rows in a batch: small enough to be reached.
    """

    first: State
    steps: tuple[Step, ...]
    limits: tuple[int, int, int, int] = (16, 1_000, 100, 16_384)


@cache
def image(number: int) -> bytes:
    pixels = random.Random(number).randbytes(3 * 6)
    target = io.BytesIO()
    Image.frombytes("RGB", (3, 2) if number % 3 else (2, 3), pixels).save(target, "PNG")
    return target.getvalue()


def content(ext: str, number: int) -> bytes:
    """A text or an image; every second bad image is as long as another one."""
    if ext == "png":
        return image(number % 50)
    return (b"", b"%03d" % number, b"%03d " % number * 30, b"%03d " % number * 150)[number % 4]


def bad_image(number: int) -> bytes:
    return BAD + b"%03d" % number + b"." * (60 * (number % 2))


def edited(state: State, edit: Edit, past: list[State]) -> tuple[State, set[str]]:
    """The state after a change, and the keys that were written without having changed."""
    objects, labels, options = dict(state.objects), dict(state.labels), dict(state.options)
    touched: set[str] = set()
    key = state.keys[edit.which % len(state.keys)]
    sample, _, ext = key.partition(".")
    parts = [name for name in state.keys if name.partition(".")[0] == sample]
    match edit.kind:
        case "add":
            name = CLASSES[edit.which % len(CLASSES)]
            top, number = FOLDERS[edit.which // 7 % 2], edit.which // 3 % NAMES
            for ext in EXTS[edit.how % 3 :][: 1 + edit.how // 3 % 2]:
                new = f"{top}/{name}/{number}.{ext}"
                objects.setdefault(new, content(ext, edit.how))
        case "remove":
            for part in parts:
                del objects[part]
        case "remove some":
            for name in sorted(state.samples())[edit.which % 3 :: 2 + edit.how % 3]:
                for part in [part for part in objects if part.partition(".")[0] == name]:
                    del objects[part]
        case "change":
            objects[key] = content(ext, edit.how)
        case "break":
            images = [name for name in state.keys if name.endswith(".png")]
            if images:
                objects[images[edit.which % len(images)]] = bad_image(edit.how)
        case "repair":
            for name, data in state.objects.items():
                if data.startswith(BAD) and (edit.how % 2 or name == key):
                    objects[name] = content("png", edit.how)
        case "part":
            other = f"{sample}.{EXTS[edit.how % 3]}"
            if other not in objects:
                objects[other] = content(EXTS[edit.how % 3], edit.how)
            elif len(parts) > 1:
                del objects[other]
        case "rename":
            old, new = (CLASSES[at % len(CLASSES)] for at in (edit.which, edit.how))
            for name in [name for name in objects if name.split("/")[1] == old]:
                top, _, base = name.split("/")
                objects.setdefault(f"{top}/{new}/{base}", objects[name])
                if new != old:
                    del objects[name]
        case "relabel":
            labels[sample] = CLASSES[edit.how % len(CLASSES)]
        case "touch":
            touched |= set(state.keys[edit.which % 2 :: 1 + edit.how % 3])
        case "revert":
            if past:
                objects = dict(past[edit.which % len(past)].objects)
                touched |= set(objects)
        case "revert all":
            if past:
                before = past[edit.which % len(past)]
                objects, labels, options = map(
                    dict, (before.objects, before.labels, before.options)
                )
        case "option":
            name = tuple(OPTIONS)[edit.which % len(OPTIONS)]
            options[name] = OPTIONS[name][edit.how % len(OPTIONS[name])]
    now = State(objects, labels, options)
    if not any(not is_bad(parts) for parts in now.samples().values()):
        now = replace(now, objects={**objects, "t/bee/anchor.txt": b"anchor"})
    return now, touched


KINDS = (
    *("add", "add", "add", "remove", "remove", "remove some", "change", "change", "break"),
    *("break", "repair", "part", "part", "rename", "relabel", "touch", "revert", "revert all"),
    *("option", "option", "option", "option"),
)
NUMBERS = st.integers(0, 199)
EDITS = st.builds(Edit, st.sampled_from(KINDS), NUMBERS, NUMBERS)
ADDED = st.builds(Edit, st.just("add"), NUMBERS, NUMBERS)
CHOSEN = st.fixed_dictionaries({name: st.sampled_from(found) for name, found in OPTIONS.items()})


def _first(options: Mapping[str, Any], edits: list[Edit]) -> State:
    state = State({"t/bee/anchor.txt": b"anchor"}, {}, options)
    for edit in edits:
        state, _ = edited(state, edit, [])
    return state


FIRSTS = st.builds(_first, CHOSEN, st.lists(ADDED, min_size=1, max_size=14))


def steps(*, abandoned: bool) -> st.SearchStrategy[Step]:
    stops = st.none() | st.none() | st.integers(0, 40)
    return st.builds(
        Step,
        st.lists(EDITS, min_size=1, max_size=4).map(tuple),
        stops,
        st.booleans() if abandoned else st.just(False),
        st.sampled_from([False] * 5 + [True]),
    )


def histories(*, abandoned: bool = True, most: int = 10) -> st.SearchStrategy[History]:
    """Histories of a few steps.

    Args:
        abandoned: Whether a run that was stopped may be the last one before the next change.
        most: Maximum number of steps.
    """
    return st.builds(
        History,
        FIRSTS,
        st.lists(steps(abandoned=abandoned), min_size=2, max_size=most).map(tuple),
        st.tuples(*map(st.sampled_from, ([16, 2, 3], [1_000, 0, 1], [100, 1], [16_384, 3]))),
    )
