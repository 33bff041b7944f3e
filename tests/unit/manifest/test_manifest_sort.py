"""Rows in order pass; others are sorted, wherever the disorder begins."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from larder.errors import FatalError
from larder.manifest import sort as module
from larder.manifest.manifest_files import BATCH_ROWS
from larder.manifest.query import Stream, tables_in
from larder.manifest.sort import SortedFile, sort, sort_to_file, sorted_query
from tests.support.errors import larder_error

SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("kind", pa.int32(), nullable=False),
        pa.field("value", pa.uint64()),
    ]
)
ROWS = st.lists(
    st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), st.integers(-2, 2)),
    unique=True,
    max_size=30,
)


def batches(rows: list[tuple[str, int]], cut: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), cut):
        part = rows[start : start + cut]
        keys, kinds = zip(*part, strict=True)
        values = range(start, start + len(part))
        columns = [pa.array(each, f.type) for each, f in zip((keys, kinds, values), SCHEMA)]  # noqa: B905
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def run(rows: list[tuple[str, int]], folder: Path, cut: int = 7, **options: Any) -> list[Any]:
    found = list(
        sort(Stream(SCHEMA, batches(rows, cut)), ("key", "kind"), work_dir=folder, **options)
    )
    assert not list(folder.iterdir()), "nothing remains"
    assert all(batch.schema == SCHEMA and batch.num_rows <= BATCH_ROWS for batch in found)
    return [tuple(row.values()) for batch in found for row in batch.to_pylist()]


def expected(rows: list[tuple[str, int]]) -> list[Any]:
    numbered = ((key, kind, value) for value, (key, kind) in enumerate(rows))
    return sorted(numbered, key=lambda row: (row[0].encode(), row[1]))


@pytest.fixture(params=["few", "many"])
def _amount(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are sorted by Arrow, many by DuckDB."""
    if request.param == "many":
        monkeypatch.setattr(module, "_FEW_BYTES", 0)


@pytest.mark.push
@pytest.mark.usefixtures("_amount")
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(ROWS, st.integers(1, 9), st.booleans())
def test_rows_come_out_sorted_by_bytes(tmp_path_factory, rows, cut, ordered):
    if ordered:
        rows = sorted(rows, key=lambda row: (row[0].encode(), row[1]))
    assert run(rows, tmp_path_factory.mktemp("s"), cut) == expected(rows)


def test_rows_in_order_are_not_sorted(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_sorted", None)
    rows = [(f"{n:06d}", 0) for n in range(100)]
    assert run(rows, tmp_path) == expected(rows)


@pytest.mark.usefixtures("_amount")
def test_null_is_less_than_everything(tmp_path):
    values = pa.array([None, 2, 1], pa.uint64())
    keys = [pa.array(["a"] * 3), pa.array([0] * 3, pa.int32())]
    rows = Stream(SCHEMA, [pa.RecordBatch.from_arrays([*keys, values], schema=SCHEMA)])
    found = sort(rows, ("key", "kind"), ties=("value",), work_dir=tmp_path)
    assert [row["value"] for batch in found for row in batch.to_pylist()] == [None, 1, 2]


def test_an_error_of_the_rows_is_passed_on(tmp_path):
    def broken(rows: list[tuple[str, int]]) -> Iterator[pa.RecordBatch]:
        yield from batches(rows, 2)
        raise FatalError("run.internal", "the rows end here")

    for rows in ([("a", 0), ("b", 0)], [("b", 0), ("a", 0)]):
        with pytest.raises(FatalError):
            list(sort(Stream(SCHEMA, broken(rows)), ("key", "kind"), work_dir=tmp_path))
        assert not list(tmp_path.iterdir())


def to_file(rows: list[tuple[str, int]], path: Path, cut: int) -> SortedFile:
    found = sort_to_file(Stream(SCHEMA, batches(rows, cut)), ("key", "kind"), path)
    assert list(path.parent.iterdir()) == [path], "nothing else remains"
    assert (found.rows, found.schema) == (len(rows), SCHEMA)
    return found


def rows_of(found: Iterator[pa.RecordBatch]) -> list[Any]:
    return [tuple(row.values()) for batch in found for row in batch.to_pylist()]


@given(ROWS, st.integers(1, 9), st.booleans(), st.integers(0, 31), st.integers(0, 31))
def test_any_range_of_a_sorted_file_can_be_read(tmp_path_factory, rows, cut, ordered, first, stop):
    if ordered:
        rows = sorted(rows, key=lambda row: (row[0].encode(), row[1]))
    found = to_file(rows, tmp_path_factory.mktemp("s") / "sorted.arrow", cut)
    assert rows_of(found.read()) == expected(rows)
    assert rows_of(found.read(first)) == expected(rows)[first:]
    assert rows_of(found.read(first, stop)) == expected(rows)[first:stop]
    assert all(batch.num_rows for batch in found.read(first, stop)), "a batch without rows"


def test_a_range_reads_the_batches_that_it_is_in(tmp_path):
    rows = [(f"{n:06d}", 0) for n in range(40)]
    found = to_file(rows, tmp_path / "sorted.arrow", 10)
    assert [batch.num_rows for batch in found.read(10, 20)] == [10]
    assert [batch.num_rows for batch in found.read(19, 21)] == [1, 1]
    assert list(found.read(40)) == list(found.read(12, 12)) == list(found.read(25, 10)) == []


@pytest.mark.parametrize("to_a_file", [False, True])
def test_a_full_disk_is_told(tmp_path, monkeypatch, to_a_file):
    opened = pa.OSFile
    monkeypatch.setattr(pa, "OSFile", lambda _path, mode="rb": opened("/dev/full", mode))
    rows = [("a", 0), ("b", 0)]
    with larder_error("store.full"):
        to_file(rows, tmp_path / "sorted.arrow", 7) if to_a_file else run(rows, tmp_path)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux tells what is mapped")
def test_what_was_read_of_a_file_does_not_stay_in_memory(tmp_path):
    rows, schema = 1_000, pa.schema([pa.field("key", pa.string(), nullable=False)])

    def long_keys() -> Iterator[pa.RecordBatch]:
        for number in range(8):
            keys = [f"{number * rows + row:08d}{'x' * 10_000}" for row in range(rows)]
            yield pa.RecordBatch.from_arrays([pa.array(keys)], schema=schema)

    path = tmp_path / "rows.arrow"
    found = sort_to_file(Stream(schema, long_keys()), ("key",), path)
    peak = 0
    for batch in found.read():
        batch.validate(full=True)
        peak = max(peak, mapped_bytes(path))
    assert found.rows == 8 * rows
    assert peak < 3 * rows * 10_000


def mapped_bytes(path: Path) -> int:
    """Bytes of a file that this process has mapped and used."""
    parts = Path("/proc/self/smaps").read_text().split(str(path))[1:]
    return 1024 * sum(int(part.partition("\nRss:")[2].split()[0]) for part in parts)


@pytest.mark.push
def test_a_join_may_be_as_long_as_its_order(tmp_path):
    count = 300_000

    def rows(step: int) -> Stream:
        numbers = (at * step % count for at in range(count))
        keys = [(f"{number:0100d}", number) for number in numbers]
        return Stream(SCHEMA, batches(keys, 5_000))

    statement = "SELECT one.* FROM one JOIN other USING (key)"
    inputs = {"one": rows(7_919), "other": rows(104_729)}
    with tables_in(tmp_path, 40 * 1024**2):
        found = sorted_query(statement, inputs, SCHEMA, ["key"], work_dir=tmp_path)
        kinds = [kind for batch in found for kind in batch.column("kind").to_pylist()]
    assert kinds == list(range(count))
    assert not list(tmp_path.iterdir())
