"""The manifest of skipped samples, and what is not copied."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from larder.manifest.schemas import SAMPLE_ORDER, SAMPLES, SKIPPED
from larder.pipeline.index import UNKNOWN, skipped_rows
from larder.pipeline.mirror import _due
from larder.samples.order import from_objects

KEPT = pa.schema([SAMPLES.field(name) for name in ("split", "key")])
FIELDS = ("ext", "key", "size_bytes", "etag")


def row(number: int, split: str = "train", parts: int = 2) -> dict[str, object]:
    entries = [
        {
            "ext": f"e{part}",
            "key": f"k{number}.e{part}",
            "size_bytes": 10**part + number,
            "etag": f"t{number}",
        }
        for part in range(parts)
    ]
    return {"split": split, "key": f"k{number}", "parts": entries}


def cut(rows: list[dict[str, object]], schema: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist([{}, *rows[start : start + size]], schema=schema).slice(1)


@given(
    kept=st.lists(st.booleans(), max_size=60),
    cuts=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    others=st.integers(0, 3),
)
def test_what_is_planned_and_in_no_shard(
    kept: list[bool], cuts: tuple[int, int], others: int
) -> None:
    rows = [
        row(number, "train" if number < 30 else "test", number % 3 + 1)
        for number in range(len(kept))
    ]
    there = [each for each, is_kept in zip(rows, kept, strict=True) if is_kept]
    order = rows + [row(number, "", 1) for number in range(others)]  # objects of no sample
    messages = {"k1.e1": "the second", "k2": "the sample"}
    batches = list(
        skipped_rows(cut(order, SAMPLE_ORDER, cuts[0]), cut(there, KEPT, cuts[1]), messages, "how")
    )
    assert all(batch.schema == SKIPPED for batch in batches)
    for batch in batches:
        batch.validate(full=True)
    found = [each for batch in batches for each in batch.to_pylist()]
    left_out = [each for each, is_kept in zip(rows, kept, strict=True) if not is_kept]
    assert [(each["split"], each["key"]) for each in found] == [
        (each["split"], each["key"]) for each in left_out
    ]
    for each, wanted in zip(found, left_out, strict=True):
        parts: list[dict[str, object]] = wanted["parts"]  # type: ignore[assignment]
        assert each["parts"] == [{name: part[name] for name in FIELDS} for part in parts]
        expected = {"k1": "the second", "k2": "the sample"}.get(each["key"], UNKNOWN)
        assert (each["check"], each["message"]) == ("how", expected)


PACKED = {"segment": "s", "split": "t", "shard": "x", "offset": 0, "length": 1, "parts": []}


def mixed() -> pa.RecordBatch:
    """From objects, packed, bad, with a copy, with one of two copies, of no sample."""
    rows = [row(number) for number in range(5)] + [row(5, "", 1)]
    rows[1]["packed"] = PACKED
    rows[2]["bad"] = "no"
    for number, count in ((3, 2), (4, 1)):
        parts: list[dict[str, object]] = rows[number]["parts"]  # type: ignore[assignment]
        for part in parts[:count]:
            part["mirror_etag"] = "m"
    return pa.RecordBatch.from_pylist([*rows, *rows], schema=SAMPLE_ORDER)


@pytest.mark.parametrize("first", [0, 1, 5])
def test_neither_packed_nor_bad_samples_are_copied(first: int) -> None:
    batch = mixed()
    batches = [batch.slice(0, first), batch.slice(first)]
    due = [tuple(row.values()) for rows in _due(batches) for row in rows.to_pylist()]
    objects = [("k0.e0", 1), ("k0.e1", 10), ("k4.e1", 14), ("k5.e0", 6)]
    samples = [0, 0, 4, 5]
    assert due == [
        (key, size_bytes, f"t{key[1]}", sample + more)
        for more in (0, 6)
        for (key, size_bytes), sample in zip(objects, samples, strict=True)
    ]
    assert from_objects(batch.slice(0, 6)).tolist() == [True, False, False, True, True, True]
