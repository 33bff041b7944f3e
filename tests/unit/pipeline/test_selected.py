"""What the selection of a new segment reads of the previous version."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from larder.manifest.query import Stream
from larder.manifest.sort import SortedFile, sort_to_file
from larder.pipeline.selected import _PreviousRows

SCHEMA = pa.schema(
    [pa.field("key", pa.int64(), nullable=False), pa.field("text", pa.string(), nullable=False)]
)


def written(path: Path, rows: int, batch: int, text: str = "") -> SortedFile:
    def batches() -> Any:
        for start in range(0, rows, batch):
            keys = pa.array(range(start, min(start + batch, rows)), pa.int64())
            texts = pa.repeat(pa.scalar(text), len(keys))
            yield pa.RecordBatch.from_arrays([keys, texts], schema=SCHEMA)

    return sort_to_file(Stream(SCHEMA, batches()), ["key"], path)


def then(file: SortedFile, positions: Any) -> _PreviousRows:
    comparison: Any = SimpleNamespace(previous=file)
    return _PreviousRows(comparison, np.array(positions, np.int64))


@given(
    st.lists(st.integers(0, 49), unique=True, max_size=20).map(sorted),
    st.integers(1, 60),
    st.data(),
)
def test_rows_are_those_of_the_samples(
    tmp_path_factory: pytest.TempPathFactory, known: list[int], batch: int, data: st.DataObject
) -> None:
    file = written(tmp_path_factory.mktemp("t") / "rows.arrow", 50, batch)
    positions = list(known)
    for _ in range(data.draw(st.integers(0, 5))):  # samples that are new
        positions.insert(data.draw(st.integers(0, len(positions))), -1)
    found = then(file, positions)
    places = [place for place, row in enumerate(positions) if row >= 0]
    for chosen in (places, places[::2], places[:1], [], places):
        rows = found.rows(np.array(chosen, np.intp))
        assert rows.column("key").to_pylist() == [positions[place] for place in chosen]


def test_rows_that_are_far_apart_do_not_fill_the_memory(tmp_path: Path) -> None:
    """As when a large version has lost almost all of its samples."""
    file = written(tmp_path / "rows.arrow", 100_000, 5_000, text="x" * 500)
    before = pa.total_allocated_bytes()
    found = then(file, [0, -1, 50_000, 99_999])
    rows = found.rows(np.array([0, 2, 3]))
    assert rows.column("key").to_pylist() == [0, 50_000, 99_999]
    assert pa.total_allocated_bytes() - before < 1_000_000 < 100_000 * 500
