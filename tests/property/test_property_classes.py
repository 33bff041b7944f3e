"""The number of a class, from every source of labels, against a rule written from the page alone.

``LARDER_CLASSES`` is the number of generated sources. The page is docs/reference/config.md.
"""

import csv
import io
import json
import os
import re
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st
from required import all_required, nightly

from larder.errors import ConfigError
from larder.manifest.manifest_files import read_manifest
from larder.manifest.schemas import SAMPLE_ORDER
from larder.pipeline.planning.plan import make_plan
from larder.pipeline.planning.source_state import inspect_source
from larder.progress import NullProgress
from tests.support.runs import run_settings

DEFAULT = 300 if nightly() else 36 if all_required() else 12
EXAMPLES = int(os.environ.get("LARDER_CLASSES", DEFAULT))
pytestmark = pytest.mark.timeout(600 + EXAMPLES)

WHOLE = re.compile("0|-?[1-9][0-9]*")
ELSEWHERE = ""
"""The origin of texts of folders, keys and columns; label files have their key."""

Texts = Mapping[str, Collection[str]]
"""The texts that each origin gives samples."""


class Numbers(NamedTuple):
    classes: list[str]
    of: dict[tuple[str, str], int]


def rule(texts: Texts, pinned: Sequence[str] | None, published: Sequence[str]) -> Numbers | None:
    elsewhere = set(texts.get(ELSEWHERE, ()))
    in_files = {text for origin, some in texts.items() if origin != ELSEWHERE for text in some}
    classes = list(pinned or ())
    if pinned is None:
        places = elsewhere and all_whole(in_files) and not any_whole({*elsewhere, *published})
        names = {*published, *elsewhere, *(() if places else in_files)}
        order: Any = int if all_whole(names) else str.encode
        classes = [*published, *sorted(names - {*published}, key=order)]
    of = {}
    for origin, some in texts.items():
        are_places = all_whole(some) and not any_whole(classes)
        for text in some:
            number = classes.index(text) if text in classes else int(text) if are_places else -1
            if not 0 <= number < len(classes):
                return None
            of[origin, text] = number
    return Numbers(classes, of)


def all_whole(texts: Collection[str]) -> bool:
    return all(map(WHOLE.fullmatch, texts))


def any_whole(texts: Collection[str]) -> bool:
    return any(map(WHOLE.fullmatch, texts))


def numbers(first: int, last: int, most: int = 14) -> st.SearchStrategy[list[str]]:
    return st.lists(st.integers(first, last).map(str), min_size=1, max_size=most, unique=True)


def words(*names: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(names), min_size=1, unique=True)


KINDS = {
    "range": st.integers(1, 25).map(lambda count: [*map(str, range(count))]),
    "gaps": numbers(0, 30),
    "negative": numbers(-12, 12),
    "years": numbers(1990, 2030),
    "products": numbers(5, 10**12),
    "longest": numbers(2**63 - 2, 2**64 + 2, 4),
    "words": words("ant", "bee", "Bee", "cat", "dog", "élan", "zebra"),
    "letters": st.integers(1, 10).map(lambda count: [*"ABCDEFGHIJ"[:count]]),
    "zeros": words("007", "07", "00", "7", "-0", "-07"),
    "floats": words("1.0", "2.0", "10.0", "1e3", ".5"),
    "signs": words("+1", "+10", "-1", "1-", "--1"),
    "spaces": words("cat", " cat", "cat ", "1", " 1", "1 ", "ice cream"),
    "digits": words("１", "٣", "²", "1", "3"),
}

Kind = st.sampled_from(sorted(KINDS)).flatmap(KINDS.__getitem__)
Mixture = st.lists(Kind, min_size=1, max_size=2).map(
    lambda kinds: [*dict.fromkeys(text for kind in kinds for text in kind)]
)
FORMATS = ("csv", "jsonl", "parquet")
SOURCES = (
    "folder",
    "pattern",
    "file",
    "folder and file",
    "pattern and file",
    "column and file",
    "two files",
    *(f"rows {kind}" for kind in FORMATS),
    *(f"annotations {kind}" for kind in (*FORMATS, "coco")),
)


class Given(NamedTuple):
    """A source of labels: two generations of texts, the second of a label file for validation."""

    source: str
    first: list[str]
    more: list[str]
    file: list[str]
    pinned: list[str] | None
    integers: bool


@st.composite
def cases(draw: st.DrawFn) -> Given:
    first, more, file = draw(Mixture), draw(st.one_of(st.just([]), Mixture)), draw(Mixture)
    texts = [*dict.fromkeys([*first, *more, *file])]
    pinned = draw(
        st.one_of(
            st.none(),
            st.none(),
            st.permutations(texts),
            st.just(["ant", "bee", "cat", "dog"]),
            Mixture,
        )
    )
    return Given(draw(st.sampled_from(SOURCES)), first, more, file, pinned, draw(st.booleans()))


def table(kind: str, rows: list[dict[str, Any]]) -> bytes:
    target = io.BytesIO()
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), target)
    elif kind == "jsonl":
        target.write("".join(json.dumps(row) + "\n" for row in rows).encode())
    else:
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        target.write(text.getvalue().encode())
    return target.getvalue()


def put(folder: Path, key: str, data: bytes = b"x") -> None:
    path = folder / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


class Written(NamedTuple):
    """A source on the disk: the fields of its dataset, and by sample its origin and text."""

    fields: dict[str, Any]
    samples: dict[str, tuple[str, str]]

    @property
    def texts(self) -> Texts:
        texts: dict[str, set[str]] = {}
        for origin, text in self.samples.values():
            texts.setdefault(origin, set()).add(text)
        return texts


def write(case: Given, texts: list[str], folder: Path) -> Written:
    source, _, kind = case.source.partition(" ")
    whole = case.integers and all_whole(texts) and max(map(abs, map(int, texts))) < 2**63
    values = [*map(int, texts)] if whole else texts
    labels: dict[str, Any] = {"classes": case.pinned}
    fields: dict[str, Any] = {"splits": {"train": "t/**", "validation": "**"}, "labels": labels}
    samples: dict[str, tuple[str, str]] = {}
    if source == "rows":
        rows = [{"id": f"r{at}", "c": value} for at, value in enumerate(values)]
        put(folder, f"t/x.{kind}", table(kind, rows))
        fields["source"] = {"rows": {"key": "id"}}
        labels["column"] = "c"
        samples |= {f"t/x.{kind}/r{at}": (ELSEWHERE, text) for at, text in enumerate(texts)}
    elif source in ("folder", "pattern"):
        for at, text in enumerate(texts):
            put(folder, f"t/{text}/{at}.txt")
            samples[f"t/{text}/{at}"] = (ELSEWHERE, text)
        if source == "pattern":
            labels["pattern"] = "^t/(.*)/[^/]*$"
    elif source in ("file", "two"):
        put_list(folder, "t", texts, samples)
        labels["files"] = {"train": "t.list"}
    else:
        rows = [{"file_name": f"t/{at}.txt", "c": value} for at, value in enumerate(values)]
        kind = kind if kind in (*FORMATS, "coco") else "csv"
        images = [{"id": at, **row} for at, row in enumerate(rows)]
        coco = json.dumps({"images": images, "annotations": [], "categories": []}).encode()
        put(folder, "table", coco if kind == "coco" else table(kind, rows))
        for at, text in enumerate(texts):
            put(folder, f"t/{at}.txt")
            samples[f"t/{at}"] = (ELSEWHERE, text)
        labels["column"] = "c"
        annotations = {"files": "table", "format": kind}
        fields["samples"] = {"annotations": annotations, "missing": "keep"}
    if case.source.endswith(("file", "files")) and source != "file":
        put_list(folder, "v", case.file, samples)
        labels.setdefault("files", {})["validation"] = "v.list"
    return Written(fields, samples)


def put_list(
    folder: Path, name: str, texts: list[str], samples: dict[str, tuple[str, str]]
) -> None:
    put(
        folder,
        f"{name}.list",
        "".join(f"{name}/{at}\t{text}\n" for at, text in enumerate(texts)).encode(),
    )
    for at, text in enumerate(texts):
        put(folder, f"{name}/{at}.txt")
        samples[f"{name}/{at}"] = (f"{name}.list", text.strip())


def planned(
    written: Written, folder: Path, published: Sequence[str]
) -> tuple[list[str], dict[str, int]] | None:
    """The classes of a plan, and the number of each sample's; None if it is refused."""
    source = {"url": str(folder / "source"), **written.fields.get("source", {})}
    fields = {**written.fields, "source": source, "cache": None, "validate": "none"}
    run = run_settings(fields.pop("source"), folder / "storage", folder / "out", **fields)
    work = Path(tempfile.mkdtemp(dir=folder))
    state = inspect_source(run, work, plan_only=True, progress=NullProgress())
    try:
        plan = make_plan(state._replace(classes=tuple(published)), work, NullProgress())
    except ConfigError as error:
        if error.code != "config.label":
            raise
        return None
    order = plan.sample_order
    labels: dict[str, int] = {}
    columns = ("key", "label")
    for batch in read_manifest(order.file.path, SAMPLE_ORDER, columns=columns, rows=order.samples):
        labels |= dict(zip(*(batch.column(name).to_pylist() for name in columns), strict=True))
    return list(order.classes), labels


@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
@given(cases())
@example(Given("file", [*"0123456789", *"ABCDEFGHIJ"], [], [], None, False))
@example(Given("rows parquet", [*map(str, range(12))], ["12", "13"], [], None, True))
@example(Given("rows parquet", ["-1", "0", "1"], [], [], None, True))
@example(Given("folder", [*map(str, range(12))], [], [], None, False))
@example(Given("folder and file", ["ant", "bee"], ["cat"], ["0", "1"], None, False))
def test_every_class_has_the_number_of_the_page(case):
    published: list[str] = []
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        (folder / "source").mkdir()
        for texts in (case.first, [*dict.fromkeys([*case.first, *case.more])]):
            written = write(case, texts, folder / "source")
            expected = rule(written.texts, case.pinned, published)
            found = planned(written, folder, published)
            event(f"{case.source}, {'refused' if expected is None else 'numbered'}")
            if expected is None:
                assert found is None
                return
            assert found == (
                expected.classes,
                {key: expected.of[origin] for key, origin in written.samples.items()},
            )
            published = expected.classes
