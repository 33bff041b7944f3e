"""The mirror in the order of the samples."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from larder.errors import FatalError
from larder.manifest import sort
from larder.manifest.schemas import SAMPLE_ORDER
from larder.transfer.align import MIRRORED, align_copies
from larder.transfer.mirrored import mirrored_objects
from larder.transfer.receipts import COPIED

KEYS = [f"{letter}/{number}" for letter in "aäz\U0001f600" for number in range(5)]


def copied(keys: list[str]) -> list[pa.RecordBatch]:
    modified = datetime(2024, 1, 1, tzinfo=UTC)
    rows = [
        (key, index, f"s-{key}", f"e-{key}", modified, f"c-{key}" if index % 2 else None, "md5")
        for index, key in enumerate(sorted(keys, key=str.encode))
    ]
    table = pa.Table.from_pylist(
        [dict(zip(COPIED.names, row, strict=True)) for row in rows], schema=COPIED
    )
    batches: list[pa.RecordBatch] = table.to_batches(max_chunksize=3)
    return batches


def arranged(samples: list[list[str]], rows: int) -> list[pa.RecordBatch]:
    def sample(keys: list[str]) -> dict[str, Any]:
        parts = [{"ext": "x", "key": key, "size_bytes": 0, "etag": ""} for key in keys]
        return {"split": "", "key": "", "label": None, "parts": parts}

    table = pa.Table.from_pylist([sample(keys) for keys in samples], schema=SAMPLE_ORDER)
    batches: list[pa.RecordBatch] = table.to_batches(max_chunksize=rows)
    return batches


def align(samples: list[list[str]], rows: int, keys: list[str], folder: Path) -> pa.Table:
    batches = align_copies(lambda: arranged(samples, rows), copied(keys), work_dir=folder)
    return pa.Table.from_batches(batches, schema=MIRRORED)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(KEYS), cuts=st.lists(st.integers(1, 4)), rows=st.integers(1, 7))
def test_rows_and_parts_are_those_of_the_arrangement(
    tmp_path: Path, order: list[str], cuts: list[int], rows: int
) -> None:
    samples, left = [], order
    for cut in cuts:
        samples.append(left[:cut])
        left = left[cut:]
    table = align(samples, rows, KEYS, tmp_path)
    lists = table.column("parts").to_pylist()
    assert [[part["key"] for part in parts] for parts in lists] == samples
    found = mirrored_objects(table.to_batches())
    known = {row["key"]: row for batch in copied(KEYS) for row in batch.to_pylist()}
    assert found == {
        key: tuple(known[key][name] for name in ("size_bytes", "source_etag", "etag", "checksum"))
        for keys in samples
        for key in keys
    }


def test_more_than_memory_holds_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = [[key] for key in reversed(KEYS)]
    whole = align(samples, 4, KEYS, tmp_path)
    monkeypatch.setattr(sort, "_RUN_BYTES", 100)
    assert align(samples, 4, KEYS, tmp_path).equals(whole)
    assert not list(tmp_path.iterdir())


def test_a_part_that_was_not_copied_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="1 object of the samples") as caught:
        align([["a/0", "a/1"]], 1, ["a/1"], tmp_path)
    assert caught.value.code == "run.internal"
