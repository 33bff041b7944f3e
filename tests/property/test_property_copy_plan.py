"""For any source, storage and history, the plan of a copy is exactly the difference.

The model looks every key up; the plan compares streams of rows, cut into pieces of any length.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from larder.config.models.copy_config import RunnerConfig
from larder.copy.copy_job import cut_batches, even_batch_bytes
from larder.copy.copy_matches import outstanding
from larder.jobs.results import Totals
from larder.manifest.query import Stream
from larder.manifest.schemas import OBJECTS
from larder.manifest.sort import whole_keys
from larder.store.etags import is_md5

MD5 = ["a" * 32, "b" * 32]
MULTIPART = "a" * 32 + "-2"
ETAGS = [*MD5, MULTIPART, "A" * 32, "odd", ""]

Stored = tuple[int, str, int]
"""Size, etag and modification time."""


@dataclass(frozen=True)
class Copied:
    """A row of a receipt, or of the record."""

    key: str
    size_bytes: int
    etag: str
    modified: int
    copy_etag: str
    check: str


@dataclass(frozen=True)
class Case:
    source: Mapping[str, Stored]
    there: Mapping[str, Stored]
    receipts: Sequence[Copied]
    record: Mapping[str, Copied]
    md5: bool
    sizes: bool
    markers: bool
    selected: frozenset[str]
    cuts: Sequence[int]


@dataclass
class Result:
    due: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    standing: list[tuple[str, int, str, str | None, str | None]] = field(default_factory=list)
    replaced: int = 0
    unrecorded: int = 0
    others: int = 0
    markers: int = 0


KEYS = st.sampled_from(["a", "a/", "a/b", "b", "c\n", "é", "\ue000", "\U0001f600", "z/"])
SIZES = st.integers(0, 1)
TIMES = st.integers(1, 3)
STORED = st.dictionaries(KEYS, st.tuples(SIZES, st.sampled_from(ETAGS), TIMES))
COPIED = st.builds(
    Copied,
    KEYS,
    SIZES,
    st.sampled_from(ETAGS),
    TIMES,
    st.sampled_from(ETAGS),
    st.sampled_from(["md5", "crc32c", "size"]),
)
CASES = st.builds(
    Case,
    source=STORED,
    there=STORED,
    receipts=st.lists(COPIED, max_size=8),
    record=st.lists(COPIED, max_size=8).map(lambda rows: {row.key: row for row in rows}),
    md5=st.booleans(),
    sizes=st.booleans(),
    markers=st.booleans(),
    selected=st.frozensets(KEYS),
    cuts=st.lists(st.integers(1, 9), max_size=4),
)


def by_bytes(keys: Any) -> list[str]:
    return sorted(keys, key=str.encode)


def model(case: Case) -> Result:
    """Looks up every key."""
    found = Result()
    rows = [(row, False) for row in sorted(case.receipts, key=order)]
    rows += [(row, True) for row in case.record.values()]
    if not case.sizes:
        rows = [(row, recorded) for row, recorded in rows if row.check != "size"]
    for key in by_bytes({*case.source, *case.there}):
        there = case.there.get(key)
        known = [(row, recorded) for row, recorded in rows if row.key == key and there]
        known = [(row, recorded) for row, recorded in known if row.copy_etag == there[1]]
        if key in case.source:
            of_source(case, found, key, known)
            continue
        assert there is not None
        fitting = [(row, recorded) for row, recorded in known if row.size_bytes == there[0]]
        if fitting:
            row, recorded = fitting[-1]
            found.standing.append((key, row.size_bytes, row.etag, row.copy_etag, row.check))
            found.unrecorded += not recorded
            found.gone += [key] if key in case.selected else []
        else:
            found.others += key in case.selected
    return found


def of_source(case: Case, found: Result, key: str, known: list[tuple[Copied, bool]]) -> None:
    size_bytes, etag, modified = case.source[key]
    there = case.there.get(key)
    fitting = [(row, recorded) for row, recorded in known if row.etag == etag]
    row, recorded = fitting[-1] if fitting else (None, False)
    by_md5 = case.md5 and there is not None and etag == there[1] and is_md5(etag)
    older = etag != "" or (row is not None and modified <= row.modified)
    if there and there[0] == size_bytes and (row or by_md5) and older:
        found.same.append(key)
        check = row.check if row else "md5"
        found.standing.append((key, size_bytes, etag, there[1], check))
        found.unrecorded += not recorded
    elif not case.markers and size_bytes == 0 and key.endswith("/"):
        found.markers += 1
    else:
        found.due.append(key)
        found.replaced += there is not None


def order(row: Copied) -> tuple[bytes, int, bytes, bytes]:
    return row.key.encode(), row.modified, row.etag.encode(), row.copy_etag.encode()


def stored_rows(objects: Mapping[str, Stored]) -> list[dict[str, Any]]:
    names = ("size_bytes", "etag", "modified")
    return [
        {"key": key, **dict(zip(names, objects[key], strict=True))} for key in by_bytes(objects)
    ]


def copied_rows(rows: Sequence[Copied]) -> list[dict[str, Any]]:
    return [{**vars(row), "mirror_etag": row.copy_etag} for row in rows]


def stream(rows: list[dict[str, Any]], cuts: Sequence[int]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist([], schema=OBJECTS)
    for cut in (*cuts, len(rows)):
        yield pa.RecordBatch.from_pylist(rows[:cut], schema=OBJECTS)
        rows = rows[cut:]


def planned(case: Case) -> Result:
    receipts = copied_rows(sorted(case.receipts, key=order))
    record = copied_rows([case.record[key] for key in by_bytes(case.record)])

    def selected(keys: pa.Array) -> np.typing.NDArray[np.bool_]:
        return np.array([key in case.selected for key in keys.to_pylist()], np.bool_)

    found = Result()
    for piece in outstanding(
        Stream(OBJECTS, stream(stored_rows(case.source), case.cuts)),
        Stream(OBJECTS, stream(stored_rows(case.there), case.cuts[::-1])),
        Stream(OBJECTS, whole_keys(stream(receipts, case.cuts), "key")),
        Stream(OBJECTS, stream(record, case.cuts[1:])),
        md5=case.md5,
        sizes=case.sizes,
        markers=case.markers,
        selected=selected,
    ):
        found.due += piece.due.column("key").to_pylist()
        found.same += piece.same.column("key").to_pylist()
        found.gone += piece.gone.column("key").to_pylist()
        names = ("key", "size_bytes", "etag", "mirror_etag", "check")
        columns = (piece.verified.column(name).to_pylist() for name in names)
        found.standing += zip(*columns, strict=True)
        found.replaced += piece.replaced
        found.unrecorded += piece.unrecorded
        found.others += piece.others
        found.markers += piece.markers
    return found


def single(etag: str, copy_etag: str, copy_bytes: int = 1) -> Case:
    """An object of one byte, and what is under its key; no receipts."""
    source, there = {"a": (1, etag, 1)}, {"a": (copy_bytes, copy_etag, 1)}
    return Case(source, there, [], {}, True, True, True, frozenset("a"), [])


@settings(max_examples=4 * settings.default.max_examples)
@given(CASES)
@example(single(MD5[0], MD5[1]))
@example(single(MD5[0], MD5[0], 0))
@example(single("A" * 32, "A" * 32))
def test_the_plan_is_the_difference(case):
    assert planned(case) == model(case)


PIECES = st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=4)


@given(PIECES, st.integers(1, 20), st.integers(1, 5))
def test_batches_cover_every_row_once(sizes, most, rows):
    flat = [size for each in sizes for size in each]
    batches = [
        pa.record_batch([pa.array(each, pa.int64())], names=["size_bytes"]) for each in sizes
    ]
    found = list(cut_batches(batches, most, rows))
    at = 0
    for batch in found:
        assert batch.first_row == at
        at += batch.rows
        assert 1 <= batch.rows <= rows
        assert batch.bytes == sum(flat[batch.first_row : at])
        assert batch.bytes <= most or batch.rows == 1
    assert at == len(flat)
    for one, other in pairwise(found):
        full = one.bytes + flat[other.first_row] > most
        assert full or one.rows == rows


@pytest.mark.parametrize(
    ("sizes", "workers", "rows"),
    [
        ([128_000_000] * 8, 2, [4, 4]),
        ([128_000_000] * 9, 2, [5, 4]),
        ([128_000_000] * 8, 1, [4, 4]),
        ([128_000_000] * 25, 8, [7, 7, 7, 4]),
        ([200_000, *[100_000] * 5, 300_000] * 1_100, 2, [3_850, 3_850]),
        ([0] * 10, 2, [10]),
        ([0] * 9 + [5], 2, [10]),
        ([10_000_000_000, *[100_000] * 9], 2, [1, 9]),
        ([128_000_000] * 7, 2, [7]),
        ([128_000_000] * 8, 16, [4, 4]),
        ([150_000_000] * 14, 2, [4, 4, 4, 2]),
        ([900_000_000] * 3, 2, [1, 1, 1]),
        ([], 2, []),
    ],
)
def test_concurrent_batches_of_a_copy_are_about_equal(sizes, workers, rows):
    """Seven of eight objects had half of the memory while the other half was idle."""
    column = pa.array(sizes, pa.int64())
    most = even_batch_bytes(Totals(len(sizes), sum(sizes)), RunnerConfig(workers=workers))
    found = cut_batches([pa.record_batch([column], names=["size_bytes"])], most)
    assert [batch.rows for batch in found] == rows
