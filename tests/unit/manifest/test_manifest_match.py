"""Matching rows by key: the same as a look-up of every key, however the rows are cut."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from larder.manifest.match import match_rows, take_rows

SCHEMA = pa.schema([("key", pa.string()), ("row", pa.int64())])
KEYS = st.lists(st.sampled_from(["a", "aa", "b", "é", "z", "\U0001f600", "\uffff"]), max_size=30)
CUT = st.integers(1, 9)


def cut(keys: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    table = pa.table([keys, list(range(len(keys)))], schema=SCHEMA)
    yield from table.to_batches(max_chunksize=rows)
    yield pa.RecordBatch.from_pylist([], schema=SCHEMA)


@given(KEYS, CUT, KEYS, CUT)
def test_each_batch_gets_all_rows_of_its_keys(
    wanted: list[str], wanted_rows: int, found: list[str], found_rows: int
) -> None:
    wanted.sort(key=str.encode)
    found.sort(key=str.encode)
    pairs = list(match_rows(cut(wanted, wanted_rows), cut(found, found_rows), SCHEMA))
    assert [key for batch, _ in pairs for key in batch.column("key").to_pylist()] == wanted
    for batch, matches in pairs:
        keys = set(batch.column("key").to_pylist())
        expected = [row for row, key in enumerate(found) if key in keys]
        assert matches.column("row").to_pylist() == expected
        assert matches.schema == SCHEMA


def test_rows_are_read_no_further_than_needed() -> None:
    found = cut(["a", "b", "c", "d"], 1)
    pairs = match_rows(cut(["a", "a"], 1), found, SCHEMA)
    assert len(list(pairs)) == 2
    assert next(found).column("key").to_pylist() == ["c"]


def test_rows_are_matched_by_key() -> None:
    table = pa.table([["a", "b"], [1, 2]], schema=SCHEMA)
    taken = take_rows(pa.array(["b", "x", "a", "b"]), table)
    assert taken.column("row").to_pylist() == [2, None, 1, 2]
    assert take_rows(pa.array(["x"]), SCHEMA.empty_table()).column("row").to_pylist() == [None]
