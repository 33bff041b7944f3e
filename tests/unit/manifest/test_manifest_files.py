"""Manifests in files, and rows that wait in a temporary file."""

import errno
import gc
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from larder.errors import DamageError
from larder.manifest.manifest_files import (
    ManifestFile,
    ManifestWriter,
    read_manifest,
    write_manifest,
)
from larder.manifest.schemas import SAMPLE_ORDER, SOURCES
from larder.manifest.spool import Spool
from larder.segments.pack import SHARD_PLAN
from tests.support.errors import larder_error

Row = tuple[str, str, int | None, list[dict[str, Any]], dict[str, Any] | None, str | None]


def row(at: int) -> Row:
    part = {"ext": "jpg", "key": f"a/{at}.JPG", "size_bytes": at, "etag": "e" * 32}
    part |= {"checksum": None}
    place = {"ext": "jpg", "offset": at % 3 or None, "length": at, "crc32c": 2**32 - 1}
    packed = {"shard": "u", "offset": 1, "length": 2}
    packed = {**packed, "parts": [place] * (at % 3 + 1)} if at % 5 else None
    bad = None if at % 7 else "the file is empty"
    return ("train", f"a/{at}", at % 3 or None, [part] * (at % 3 + 1), packed, bad)


def batches(rows: list[Row], cut: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), cut):
        columns = zip(*rows[start : start + cut], strict=True)
        arrays = [
            pa.array(column, field.type)
            for column, field in zip(columns, SAMPLE_ORDER, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=SAMPLE_ORDER)


def read(path: Path, **options: Any) -> list[Row]:
    found = read_manifest(path, SAMPLE_ORDER, **options)
    return [tuple(item.values()) for batch in found for item in batch.to_pylist()]


def hundred_rows(path: Path) -> ManifestFile:
    rows = [row(at) for at in range(100)]
    return write_manifest(path, SAMPLE_ORDER, batches(rows, 9), row_group_rows=16)


@pytest.fixture
def manifest(tmp_path: Path) -> ManifestFile:
    return hundred_rows(tmp_path / "m.parquet")


@pytest.mark.push
@given(
    count=st.integers(0, 50),
    cuts=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    row_group_rows=st.integers(1, 20),
)
def test_same_rows_same_bytes_however_they_come(tmp_path_factory, count, cuts, row_group_rows):
    folder = tmp_path_factory.mktemp("same")
    rows = [row(at) for at in range(count)]
    groups = {"row_group_rows": row_group_rows}
    one, two = (
        write_manifest(folder / f"{cut}", SAMPLE_ORDER, batches(rows, cut), **groups)
        for cut in cuts
    )
    with ManifestWriter(folder / "rows", SAMPLE_ORDER, **groups) as writer:
        writer.append(rows[:7])
        for batch in batches(rows[7:], 5):
            writer.append_batch(batch)
    assert one.sha256 == two.sha256 == writer.file.sha256
    assert read(one.path) == rows


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hundred_rows(tmp_path_factory.mktemp("shared") / "m.parquet").path


@given(first_row=st.integers(0, 100), rows=st.integers(0, 100), batch_rows=st.integers(1, 40))
def test_reads_any_range_of_rows(shared, first_row, rows, batch_rows):
    rows = min(rows, 100 - first_row)
    found = read(shared, first_row=first_row, rows=rows, batch_rows=batch_rows)
    assert found == [row(at) for at in range(first_row, first_row + rows)]
    assert read(shared, first_row=first_row) == [row(at) for at in range(first_row, 100)]


def test_reads_only_the_row_groups_that_hold_the_rows(manifest):
    metadata = pq.read_metadata(manifest.path)
    data = bytearray(manifest.path.read_bytes())
    for group in (0, 2):
        data[metadata.row_group(group).column(1).data_page_offset + 40] ^= 0xFF
    manifest.path.write_bytes(data)
    assert read(manifest.path, first_row=16, rows=16) == [row(at) for at in range(16, 32)]
    for first_row in (15, 17):
        with pytest.raises(DamageError):
            read(manifest.path, first_row=first_row, rows=16)


def test_an_error_leaves_nothing_behind(tmp_path):
    (tmp_path / "m").write_text("before")

    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches([row(0)], 1)
        raise KeyError("broken")

    with pytest.raises(KeyError):
        write_manifest(tmp_path / "m", SAMPLE_ORDER, broken())
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert (tmp_path / "m").read_text() == "before"


@pytest.mark.push
def test_every_flipped_bit_is_found_or_harmless(tmp_path):
    rows = [(*row(at)[:4], None, None) for at in range(8)]
    file = write_manifest(tmp_path / "m", SAMPLE_ORDER, batches(rows, 8), row_group_rows=4)
    data = file.path.read_bytes()
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        file.path.write_bytes(damaged)
        with suppress(DamageError):
            assert read(file.path) == rows


@pytest.mark.parametrize(
    "data", [None, b"", b"PAR1", b"not a manifest at all"], ids=["missing", "empty", "cut", "text"]
)
def test_a_file_that_is_not_a_manifest_is_damage(tmp_path, data):
    if data is not None:
        (tmp_path / "m").write_bytes(data)
    with larder_error("damage.manifest"):
        read(tmp_path / "m")


def test_another_schema_is_damage(manifest):
    with pytest.raises(DamageError):
        list(read_manifest(manifest.path, SOURCES))


@pytest.mark.parametrize(("first_row", "rows"), [(101, None), (90, 11), (0, 101)])
def test_missing_rows_are_damage(manifest, first_row, rows):
    with pytest.raises(DamageError):
        read(manifest.path, first_row=first_row, rows=rows)


@pytest.mark.parametrize("size_bytes", [-1, 2**53, 2**63 - 1])
def test_numbers_that_no_file_has_are_refused(tmp_path, size_bytes):
    row = ("train", 0, "d.tar", 0, 1, size_bytes)
    rows = pa.RecordBatch.from_pylist([dict(zip(SHARD_PLAN.names, row, strict=True))], SHARD_PLAN)
    file = write_manifest(tmp_path / "m.parquet", SHARD_PLAN, [rows])
    with pytest.raises(DamageError, match="invalid bytes"):
        list(read_manifest(file.path, SHARD_PLAN))


SCHEMA = pa.schema([pa.field("key", pa.string()), pa.field("parts", pa.list_(pa.int64()))])


def numbered_rows(first: int, count: int) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return pa.RecordBatch.from_pylist(
        [{"key": f"k{n}", "parts": list(range(n % 4))} for n in numbers], schema=SCHEMA
    )


def keys(batches: Any) -> list[str]:
    return [key for batch in batches for key in batch.column("key").to_pylist()]


@pytest.mark.parametrize("first", range(8))
@pytest.mark.parametrize("count", [None, 0, 1, 3, 7])
def test_any_range_is_read(first, count):
    spool = Spool.of([numbered_rows(0, 3), numbered_rows(3, 4)], SCHEMA)
    stop = 7 if count is None else min(7, first + count)
    assert keys(spool.read(first, count)) == [f"k{n}" for n in range(first, stop)]


def test_rows_are_added_between_reads():
    spool = Spool(SCHEMA)
    assert not list(spool.read())
    for first in range(0, 9, 3):
        spool.append(numbered_rows(first, 3))
        assert keys(spool.read(first)) == [f"k{n}" for n in range(first, first + 3)]
    reading = spool.read()
    next(reading)
    spool.append(numbered_rows(9, 1))
    assert keys(reading) == [f"k{n}" for n in range(3, 9)]


def test_many_rows_are_in_a_file_that_goes_with_them():
    """They are not in memory, and what was opened is closed."""
    before = pa.total_allocated_bytes()
    batch = numbered_rows(0, 10_000)
    held = pa.total_allocated_bytes() - before
    spool = Spool(SCHEMA)
    for _ in range(50):
        spool.append(batch)
    assert spool.num_rows == 500_000
    assert sum(1 for _ in spool.read()) == 50
    assert pa.total_allocated_bytes() - before < 2 * held
    del spool
    gc.collect()  # a file that is not closed is a warning


def test_a_row_group_is_held_at_a_time(tmp_path):
    noise = np.random.default_rng(0).integers(0, 2**62, (40, 50_000))
    every = (pa.record_batch([[""], [row]], schema=SCHEMA) for row in noise)
    file = write_manifest(tmp_path / "m", SCHEMA, every, row_group_rows=1)
    before = pa.total_allocated_bytes()
    found = read_manifest(file.path, SCHEMA, batch_rows=1)
    held = [pa.total_allocated_bytes() - before for _ in found]
    assert len(held) == 40
    assert max(held) < file.bytes / 4


def test_a_full_disk_is_an_error_with_a_name(monkeypatch):
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    spool = Spool(SCHEMA)
    monkeypatch.setattr(spool._file, "write", full)
    with larder_error("store.full", tempfile.gettempdir()):
        spool.append(numbered_rows(0, 3))
