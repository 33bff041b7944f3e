import errno
import gc
import tempfile
from typing import Any

import pyarrow as pa
import pytest

from larder.manifest.spool import Spool
from tests.support.errors import larder_error

SCHEMA = pa.schema([pa.field("key", pa.string()), pa.field("parts", pa.list_(pa.int64()))])


def rows(first: int, count: int) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return pa.RecordBatch.from_pylist(
        [{"key": f"k{n}", "parts": list(range(n % 4))} for n in numbers], schema=SCHEMA
    )


def keys(batches: Any) -> list[str]:
    return [key for batch in batches for key in batch.column("key").to_pylist()]


@pytest.mark.parametrize("first", range(8))
@pytest.mark.parametrize("count", [None, 0, 1, 3, 7])
def test_any_range_is_read(first, count):
    spool = Spool.of([rows(0, 3), rows(3, 4)], SCHEMA)
    stop = 7 if count is None else min(7, first + count)
    assert keys(spool.read(first, count)) == [f"k{n}" for n in range(first, stop)]


def test_rows_are_added_between_reads():
    spool = Spool(SCHEMA)
    assert not list(spool.read())
    for first in range(0, 9, 3):
        spool.append(rows(first, 3))
        assert keys(spool.read(first)) == [f"k{n}" for n in range(first, first + 3)]
    reading = spool.read()
    next(reading)
    spool.append(rows(9, 1))
    assert keys(reading) == [f"k{n}" for n in range(3, 9)]


def test_many_rows_are_in_a_file_that_goes_with_them():
    """They are not in memory, and what was opened is closed."""
    before = pa.total_allocated_bytes()
    batch = rows(0, 10_000)
    held = pa.total_allocated_bytes() - before
    spool = Spool(SCHEMA)
    for _ in range(50):
        spool.append(batch)
    assert spool.num_rows == 500_000
    assert sum(1 for _ in spool.read()) == 50
    assert pa.total_allocated_bytes() - before < 2 * held
    del spool
    gc.collect()  # a file that is not closed is a warning


def test_a_full_disk_is_an_error_with_a_name(monkeypatch):
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    spool = Spool(SCHEMA)
    monkeypatch.setattr(spool._file, "write", full)
    with larder_error("store.full", tempfile.gettempdir()):
        spool.append(rows(0, 3))
