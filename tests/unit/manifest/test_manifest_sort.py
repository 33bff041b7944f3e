from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from larder.errors import ConfigError
from larder.manifest.sort import sort_batches

SCHEMA = pa.schema(
    [
        pa.field("text", pa.string(), nullable=False),
        pa.field("number", pa.uint64(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
        pa.field("at", pa.int64(), nullable=False),
        pa.field("parts", pa.list_(pa.struct([pa.field("ext", pa.string(), nullable=False)]))),
    ]
)
Row = tuple[str, int, bytes, int, list[dict[str, str]]]


def batch(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )


def run(rows: list[Row], by: list[str], work_dir: Path, run_rows: int, cut: int) -> list[Row]:
    batches = [batch(rows[at : at + cut]) for at in range(0, len(rows), cut)]
    found = sort_batches(batches, SCHEMA, by, work_dir=work_dir, run_rows=run_rows)
    return [tuple(row.values()) for piece in found for row in piece.to_pylist()]


fields = st.tuples(
    st.one_of(st.sampled_from(["a", "A", "é", "\U0001f600", "￿", ""]), st.text(max_size=3)),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=2),
)


@settings(deadline=None)
@given(
    values=st.lists(fields, max_size=60),
    by=st.permutations(["text", "number", "data"]),
    keys=st.integers(1, 3),
    run_rows=st.integers(1, 20),
    cut=st.integers(1, 25),
)
def test_sorts_like_sorted(
    tmp_path_factory: pytest.TempPathFactory,
    values: list[tuple[str, int, bytes]],
    by: list[str],
    keys: int,
    run_rows: int,
    cut: int,
) -> None:
    rows: list[Row] = [(*value, at, [{"ext": str(at)}]) for at, value in enumerate(values)]
    places = [SCHEMA.get_field_index(name) for name in by[:keys]]

    def order(row: Row) -> list[object]:
        return [row[0].encode() if place == 0 else row[place] for place in places]

    work_dir = tmp_path_factory.mktemp("sort")
    assert run(rows, by[:keys], work_dir, run_rows, cut) == sorted(rows, key=order)
    assert list(work_dir.iterdir()) == []


def test_is_stable_over_runs_and_blocks(tmp_path: Path) -> None:
    draw = random.Random(1)
    rows: list[Row] = [(draw.choice("ab"), 0, b"", at, []) for at in range(5_000)]
    assert run(rows, ["text"], tmp_path, 100, 77) == sorted(rows, key=lambda row: row[0])


def test_merges_in_rounds_when_there_are_many_runs(tmp_path: Path) -> None:
    draw = random.Random(2)
    rows: list[Row] = [(str(draw.random()), 0, b"", at, []) for at in range(2_000)]
    assert run(rows, ["text"], tmp_path, 10, 2_000) == sorted(rows, key=lambda row: row[0])


def test_one_run_does_not_touch_the_disk(tmp_path: Path) -> None:
    rows: list[Row] = [("b", 0, b"", 0, []), ("a", 0, b"", 1, [])]
    missing = tmp_path / "missing"
    assert [row[0] for row in run(rows, ["text"], missing, 2, 1)] == ["a", "b"]
    assert not missing.exists()


def test_nothing_in_nothing_out(tmp_path: Path) -> None:
    assert list(sort_batches([], SCHEMA, ["text"], work_dir=tmp_path)) == []


def test_removes_its_files_when_abandoned(tmp_path: Path) -> None:
    rows: list[Row] = [(str(at), 0, b"", at, []) for at in range(100)]
    found = sort_batches([batch(rows)], SCHEMA, ["text"], work_dir=tmp_path, run_rows=10)
    next(found)
    assert len(list(tmp_path.iterdir())) == 1
    found.close()  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []


def test_a_work_dir_in_the_way_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    rows: list[Row] = [(str(at), 0, b"", at, []) for at in range(4)]
    with pytest.raises(ConfigError) as caught:
        run(rows, ["text"], file, 2, 2)
    assert caught.value.code == "config.path"
    assert str(file) in str(caught.value)
