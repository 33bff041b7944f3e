"""One statement over streams of rows: the result, its order and columns, and what goes wrong."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pytest

from larder.errors import DamageError, FatalError, StoreError
from larder.manifest.query import Stream, query, tables_in
from tests.support.errors import larder_error

KEYS = pa.schema([pa.field("key", pa.string(), nullable=False), pa.field("row", pa.int64())])
SORTED = "SELECT key, row FROM input ORDER BY key, row"


def cut(keys: Iterable[str], rows: int = 7) -> Stream:
    keys = list(keys)
    table = pa.table([keys, list(range(len(keys)))], schema=KEYS)
    return Stream(KEYS, table.to_batches(max_chunksize=rows))


def many(count: int) -> Stream:
    """Rows in no order, of some hundred bytes each."""

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, count, 1_000):
            numbers = [at * 7_919 % count for at in range(first, first + 1_000)]
            keys = [f"{number:0100d}" for number in numbers]
            yield pa.record_batch([pa.array(keys), pa.array(numbers, pa.int64())], schema=KEYS)

    return Stream(KEYS, batches())


@pytest.mark.push
def test_memory_and_spilling_change_nothing(tmp_path):
    def run(memory_bytes: int) -> list[pa.RecordBatch]:
        with tables_in(tmp_path, memory_bytes):
            found = query(SORTED, {"input": many(300_000)}, KEYS, work_dir=tmp_path)
            batches = [next(found)]
            spilled.append(any(path.is_file() for path in tmp_path.rglob("*")))
            return [*batches, *found]

    spilled: list[bool] = []
    large, small = run(1024**3), run(40 * 1024**2)
    assert spilled == [False, True]
    assert large == small
    keys = pa.Table.from_batches(large).column("key").to_pylist()
    assert keys == [f"{number:0100d}" for number in range(300_000)]
    assert {batch.num_rows for batch in large[:-1]} == {16_384}
    assert list(tmp_path.iterdir()) == []


def test_the_result_is_streamed(tmp_path):
    rows = iter(many(1_000_000).batches)
    found = query("SELECT * FROM input", {"input": Stream(KEYS, rows)}, KEYS, work_dir=tmp_path)
    assert next(found).num_rows == 16_384
    found.close()
    assert next(rows, None), "the rest was not read"


PART = pa.struct([pa.field("ext", pa.string(), nullable=False), ("source", pa.string())])
TYPES = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("crc32c", pa.uint32(), nullable=False),
        pa.field("hash", pa.uint64(), nullable=False),
        pa.field("split", pa.int16(), nullable=False),
        pa.field("label", pa.int32()),
        pa.field("modified", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("data", pa.binary()),
        pa.field("parts", pa.list_(pa.field("part", PART, nullable=False)), nullable=False),
    ]
)


def test_the_columns_are_those_asked_for(tmp_path):
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    most = {"crc32c": 2**32 - 1, "hash": 2**64 - 1, "split": -1, "modified": moment}
    parts = [{"ext": "jpg", "source": "b.jpg"}, {"ext": "cls", "source": None}]
    rows = [
        {"key": "b", **most, "label": None, "data": None, "parts": parts},
        {"key": "a", **most, "label": 2**31 - 1, "data": b"\0\xff", "parts": []},
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=TYPES)
    statement = "SELECT * FROM input ORDER BY key"
    (found,) = query(statement, {"input": Stream(TYPES, [batch])}, TYPES, work_dir=tmp_path)
    assert found.schema.equals(TYPES)
    assert found.to_pylist() == [rows[1], rows[0]]
    found.validate(full=True)


def test_a_folder_may_have_any_name(tmp_path):
    name = """it's; DROP %s {0} "é\n"""
    with tables_in(tmp_path / name, 40 * 1024**2):
        found = query(SORTED, {"input": many(300_000)}, KEYS, work_dir=tmp_path / name / "below")
        assert next(found).column("row").to_pylist() == list(range(16_384))
        assert any(path.is_file() for path in (tmp_path / name).rglob("*"))
        found.close()
    assert list((tmp_path / name).iterdir()) == []


def test_statements_of_a_folder_share_its_memory(tmp_path):
    """Each of them would have it without the disk."""
    with tables_in(tmp_path, 60 * 1024**2):
        inner = query(SORTED, {"input": many(300_000)}, KEYS, work_dir=tmp_path)
        first = next(inner)
        assert not any(path.is_file() for path in tmp_path.rglob("*"))
        rows = Stream(KEYS, chain([first], inner))
        outer = query(SORTED, {"input": rows}, KEYS, work_dir=tmp_path)
        batches = [next(outer)]
        assert any(path.is_file() for path in tmp_path.rglob("*"))
        assert sum(batch.num_rows for batch in (*batches, *outer)) == 300_000


def test_memory_that_does_not_suffice_is_refused(tmp_path):
    statement = "SELECT string_agg(key) AS key, 0 AS row FROM input"
    with tables_in(tmp_path, 20 * 1024**2), larder_error("config.invalid_value"):
        list(query(statement, {"input": many(300_000)}, KEYS, work_dir=tmp_path))


@pytest.mark.parametrize("kind", [DamageError, KeyError, KeyboardInterrupt])
def test_an_error_of_an_input_is_raised(tmp_path, kind):
    error = kind("damage.manifest", "it is gone")

    def batches() -> Iterator[pa.RecordBatch]:
        yield from cut("ab").batches
        raise error

    inner = query(SORTED, {"input": Stream(KEYS, batches())}, KEYS, work_dir=tmp_path)
    outer = query(SORTED, {"input": Stream(KEYS, inner)}, KEYS, work_dir=tmp_path)
    with pytest.raises(kind) as caught:
        list(outer)
    assert caught.value is error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT nothing FROM input",
        "SELECT key, CAST(NULL AS BIGINT) AS row, 1 AS more FROM input",
        "SELECT CAST(NULL AS VARCHAR) AS key, row FROM input",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_parquet('https://example.com/a.parquet')",
        "INSTALL httpfs",
        "SET memory_limit = '1GB'",
        "COPY input TO 'x.csv'",
        "SELECT a.key, b.row FROM input AS a JOIN input AS b USING (key)",
    ],
)
def test_a_forbidden_statement_is_an_error_of_larder(tmp_path, statement):
    with pytest.raises(FatalError) as caught:
        list(query(statement, {"input": cut("ab")}, KEYS, work_dir=tmp_path))
    assert caught.value.code == "run.internal"


def test_a_work_dir_in_the_way_is_named(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with larder_error("config.path"):
        list(query(SORTED, {"input": cut("ab")}, KEYS, work_dir=file))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    from required import disk_of  # not for the processes that import this module

    with disk_of("8m", tmp_path / "disk") as place:
        yield place


@pytest.mark.parametrize("filled", [False, True], ids=["before", "meanwhile"])
def test_a_full_disk_is_said(small_disk, filled):
    def batches() -> Iterator[pa.RecordBatch]:
        for at, batch in enumerate(many(300_000).batches):
            if filled and at == 20:  # after DuckDB has seen how much is free
                with open(small_disk / "ballast", "wb") as file:
                    file.write(bytes(8 * 1024**2 - 64 * 1024))
            yield batch

    rows = Stream(KEYS, batches())
    with tables_in(small_disk, 24 * 1024**2), pytest.raises(StoreError) as caught:
        list(query(SORTED, {"input": rows}, KEYS, work_dir=small_disk))
    assert caught.value.code == "store.full"
    assert not [path for path in small_disk.iterdir() if path.name != "ballast"]
