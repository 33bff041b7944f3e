"""A source that changes at random, and a plain model of what a version of it has to be."""

import hashlib
import io
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
END = b"IEND\xaeB`\x82"
"""The last bytes of every whole image."""

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
    "validate": ("header", "decode", "none"),
    "on_bad_sample": ("skip", "skip", "skip", "fail"),
    "cache": (None, "encoded", "decoded"),
    "mode": (*["append"] * 7, "rebuild"),
    "removals": ("repack", "omit"),
    "bytes": (4_000, 7_000, 12_000, 150_000_000),
    "shuffle_seed": (None, 1, 2),
    "count_min": (None, None, None, 3),
    "format": ("webdataset", "webdataset", "tfrecord", "parquet"),
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
    """What a version has to be: by split and key, the name of the class, and the parts."""

    samples: Mapping[str, Mapping[str, tuple[str | None, Parts]]]
    bad: Mapping[str, Parts]
    names: frozenset[str]

    def parts(self) -> dict[str, Parts]:
        return {key: parts for own in self.samples.values() for key, (_, parts) in own.items()}


def checked(options: Mapping[str, Any]) -> str:
    """How images are checked; decoded records ask for the strongest check."""
    return "decode" if options["cache"] == "decoded" else str(options["validate"])


def is_bad(parts: Parts, check: str = "decode") -> bool:
    """Whether an image is refused: a cut one only if it is decoded."""
    if "png" not in parts or check == "none":
        return False
    cut = check == "decode" and not parts["png"].endswith(END)
    return cut or parts["png"].startswith(BAD)


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


def label_of(key: str, state: State) -> str | None:
    if state.options["labels"] == "none":
        return None
    folder = key.split("/")[1]
    if state.options["labels"] == "file" and split_of(key, state.options) == "validation":
        return state.labels.get(key, folder)
    return folder


def expected(state: State) -> Expected:
    options = state.options
    samples: dict[str, dict[str, tuple[str | None, Parts]]] = {
        split: {} for split in split_names(options)
    }
    bad: dict[str, Parts] = {}
    names = set()
    for key, parts in state.samples().items():
        split, name = split_of(key, options), label_of(key, state)
        if name:
            names.add(name)
        if is_bad(parts, checked(options)):
            bad[key] = parts
        else:
            samples[split][key] = (name, parts)
    return Expected(samples, bad, frozenset(names))


def fields(state: State) -> dict[str, Any]:
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
        "validate": checked(options),
        "on_bad_sample": options["on_bad_sample"],
        "cache": {"records": options["cache"]} if options["cache"] else None,
        "growth": {"mode": options["mode"], "removals": options["removals"]},
    }


class Edit(NamedTuple):
    """A change of the source or of an option; the numbers choose among what is there.

    So it is a change of any state, and a history of fewer steps is a history, too.
    """

    kind: str
    which: int
    how: int


class Step(NamedTuple):
    """Some changes, and the runs that follow: the first is stopped after so many writes, if any.

    If it is ``abandoned``, no other follows it.
    """

    edits: tuple[Edit, ...]
    stop: int | None = None
    abandoned: bool = False
    compact: bool = False


@dataclass(frozen=True)
class History:
    """A first state and the steps that follow.

    The limits are of segments, ranges in version.json, patterns without a list, rows in a batch.
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
    if number % 3 == 0:
        return image(number % 50)[:-30]
    return BAD + b"%03d" % number + b"." * (60 * (number % 2))


@dataclass
class _Draft:
    """A state that is being changed; ``touched`` are keys that are written again as they are."""

    objects: dict[str, bytes]
    labels: dict[str, str]
    options: dict[str, Any]
    touched: set[str] = field(default_factory=set)

    def key(self, edit: Edit) -> str:
        keys = sorted(self.objects)
        return keys[edit.which % len(keys)]

    def parts(self, sample: str) -> list[str]:
        return [key for key in sorted(self.objects) if sample_of(key) == sample]


def sample_of(key: str) -> str:
    return key.partition(".")[0]


def _add(draft: _Draft, edit: Edit) -> None:
    name = CLASSES[edit.which % len(CLASSES)]
    top, number = FOLDERS[edit.which // 7 % 2], edit.which // 3 % NAMES
    for ext in EXTS[edit.how % 3 :][: 1 + edit.how // 3 % 2]:
        draft.objects.setdefault(f"{top}/{name}/{number}.{ext}", content(ext, edit.how))


def _remove(draft: _Draft, edit: Edit) -> None:
    for part in draft.parts(sample_of(draft.key(edit))):
        del draft.objects[part]


def _remove_some(draft: _Draft, edit: Edit) -> None:
    samples = sorted(set(map(sample_of, draft.objects)))
    for sample in samples[edit.which % 3 :: 2 + edit.how % 3]:
        for part in draft.parts(sample):
            del draft.objects[part]


def _change(draft: _Draft, edit: Edit) -> None:
    key = draft.key(edit)
    draft.objects[key] = content(key.rpartition(".")[2], edit.how)


def _break(draft: _Draft, edit: Edit) -> None:
    images = [key for key in sorted(draft.objects) if key.endswith(".png")]
    if images:
        draft.objects[images[edit.which % len(images)]] = bad_image(edit.how)


def _bad_images(draft: _Draft) -> list[str]:
    return [
        key
        for key, data in sorted(draft.objects.items())
        if key.endswith(".png") and is_bad({"png": data})
    ]


def _repair(draft: _Draft, edit: Edit) -> None:
    for key in _bad_images(draft)[edit.which % 2 :]:
        draft.objects[key] = content("png", edit.how)


def _remove_bad(draft: _Draft, edit: Edit) -> None:
    for key in _bad_images(draft)[edit.which % 2 :]:
        for part in draft.parts(sample_of(key)):
            del draft.objects[part]


def _part(draft: _Draft, edit: Edit) -> None:
    """A part more, or a part less."""
    sample, ext = sample_of(draft.key(edit)), EXTS[edit.how % 3]
    key = f"{sample}.{ext}"
    if key not in draft.objects:
        draft.objects[key] = content(ext, edit.how)
    elif len(draft.parts(sample)) > 1:
        del draft.objects[key]


def _rename(draft: _Draft, edit: Edit) -> None:
    """A folder, which is a class."""
    old, new = (CLASSES[at % len(CLASSES)] for at in edit[1:])
    for key in [key for key in sorted(draft.objects) if key.split("/")[1] == old]:
        data = draft.objects.pop(key)
        top, _, base = key.split("/")
        draft.objects.setdefault(f"{top}/{new}/{base}", data)


def _relabel(draft: _Draft, edit: Edit) -> None:
    draft.labels[sample_of(draft.key(edit))] = CLASSES[edit.how % len(CLASSES)]


def _touch(draft: _Draft, edit: Edit) -> None:
    draft.touched |= set(sorted(draft.objects)[edit.which % 2 :: 1 + edit.how % 3])


def _option(draft: _Draft, edit: Edit) -> None:
    name = tuple(OPTIONS)[edit.which % len(OPTIONS)]
    draft.options[name] = OPTIONS[name][edit.how % len(OPTIONS[name])]


CHANGES: Mapping[str, tuple[int, Callable[[_Draft, Edit], None]]] = {
    "add": (6, _add),
    "remove": (3, _remove),
    "remove some": (1, _remove_some),
    "change": (3, _change),
    "break": (2, _break),
    "repair": (1, _repair),
    "remove bad": (1, _remove_bad),
    "part": (2, _part),
    "rename": (1, _rename),
    "relabel": (2, _relabel),
    "touch": (1, _touch),
    "option": (2, _option),
}
"""The kinds of change, and how often they are drawn, besides the two that revert."""


def edited(state: State, edit: Edit, past: Sequence[State]) -> tuple[State, set[str]]:
    """The state after a change, and the keys to write again although they are as they were."""
    draft = _Draft(dict(state.objects), dict(state.labels), dict(state.options))
    if edit.kind in CHANGES:
        CHANGES[edit.kind][1](draft, edit)
    elif past:
        before = past[edit.which % len(past)]
        draft.objects, draft.touched = dict(before.objects), set(before.objects)
        if edit.kind == "revert all":
            draft.labels, draft.options = dict(before.labels), dict(before.options)
    samples = State(draft.objects, draft.labels, draft.options).samples()
    if all(is_bad(parts) for parts in samples.values()):  # a version has samples
        draft.objects["t/bee/anchor.txt"] = b"anchor"
    return State(draft.objects, draft.labels, draft.options), draft.touched & set(draft.objects)


KINDS = [
    *("revert", "revert all"),
    *(kind for kind, (weight, _) in CHANGES.items() for _ in range(weight)),
]
NUMBERS = st.integers(0, 199)
EDITS = st.builds(Edit, st.sampled_from(KINDS), NUMBERS, NUMBERS)
ADDED = st.builds(Edit, st.just("add"), NUMBERS, NUMBERS)
CHOSEN = st.fixed_dictionaries({name: st.sampled_from(found) for name, found in OPTIONS.items()})


def _first(options: Mapping[str, Any], edits: Sequence[Edit]) -> State:
    state = State({"t/bee/anchor.txt": b"anchor"}, {}, options)
    for edit in edits:
        state, _ = edited(state, edit, [])
    return state


FIRSTS = st.builds(_first, CHOSEN, st.lists(ADDED, min_size=8, max_size=24))


def steps(*, abandoned: bool) -> st.SearchStrategy[Step]:
    stops = st.none() | st.none() | st.integers(0, 40)
    return st.builds(
        Step,
        st.lists(EDITS, min_size=1, max_size=3).map(tuple),
        stops,
        st.booleans() if abandoned else st.just(False),
        st.sampled_from([False] * 9 + [True]),
    )


SMALL = ("add", "add", "add", "remove", "change", "part", "break", "relabel")
DAYS = st.builds(Step, st.tuples(st.builds(Edit, st.sampled_from(SMALL), NUMBERS, NUMBERS)))
"""Steps of one small change each: of many of them, segments are left and folded."""


def histories(*, abandoned: bool = True, most: int = 12) -> st.SearchStrategy[History]:
    """Histories of a few steps; ``abandoned`` ones may have runs that no other run follows."""
    found = steps(abandoned=abandoned)
    limits = ([16, 3, 4], [1_000, 0, 1], [100, 1], [16_384, 3])
    return st.builds(
        History,
        FIRSTS,
        st.lists(found, min_size=3, max_size=most).map(tuple)
        | st.lists(DAYS | DAYS | DAYS | found, min_size=5, max_size=most).map(tuple),
        st.tuples(*map(st.sampled_from, limits)),
    )
