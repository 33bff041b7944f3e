"""Reading a version of 244,000,000 samples takes what is asked for and no more.

The version is simulated: items of its columns are computed as they are requested, and its shards,
of fixed-size records, are 16, named again and again. Everything that reads it is real; every
request and its bytes are counted.
"""

import io
import struct
import tracemalloc
import uuid
import zipfile
from collections.abc import Iterator
from functools import cache
from typing import Any
from unittest import mock

import google_crc32c
import numpy as np
import numpy.typing as npt
import pytest

import larder
import larder.readers.access
from larder.config.shape import FormatOptions, Layout
from larder.errors import ConfigError
from larder.manifest.sealed import StoredFile, seal
from larder.readers.data import Data
from larder.store.base import ObjectInfo, Reader
from larder.store.delegate import BytesReader
from larder.versions import layout
from larder.versions.arrays import HEADER_BYTES, array_header, read_directory
from larder.versions.documents import (
    OmittedRows,
    SegmentDocument,
    SegmentSplit,
    SegmentUse,
    Shape,
    SplitFacts,
    VersionDocument,
)
from larder.versions.index import (
    BLOCK_ROWS,
    BLOCKS,
    ITEMS,
    KEYS,
    NONE,
    PARTS,
    ROWS,
    checksum,
    digests_dtype,
)
from tests.support.memory import MemoryStore, forget

pytestmark = pytest.mark.push

PERIOD = 65_536
SAMPLES_IN_ALL = 3_724 * PERIOD
RECORD_BYTES = 8
SHARD_ROWS = 4_096
SHARDS = PERIOD // SHARD_ROWS
KEY_BYTES = len("data/000000")
SEGMENT, VERSION = "5" * 32, "7" * 32
OMITTED = OmittedRows(3, ((70_000, 70_003),))
STARTS = [
    (0, 1),
    (200_000_000, 10),
    (69_998, 5),
    (SAMPLES_IN_ALL - 3 - 7, 7),
    (123 * PERIOD - 3 - 2, 4),
]
READ = [5, 1_000_000, *range(150_000_000, 150_010_000, 2_000), *(start for start, _ in STARTS)]
"""Where samples are read: only there, rows have the right checksum."""

_Array = npt.NDArray[Any]


def record(row: int) -> bytes:
    return row.to_bytes(RECORD_BYTES, "little")


@cache
def checksums() -> _Array:
    return np.array([google_crc32c.value(record(row)) for row in range(PERIOD)], np.uint32)


@cache
def keys() -> bytes:
    return b"".join(b"data/%06d" % row for row in range(PERIOD))


def items(name: str, start: int, stop: int) -> _Array:
    """Items of an array of any length."""
    numbers = np.arange(start, stop)
    if name == "keys":
        found: _Array = np.frombuffer(keys(), KEYS)[numbers % len(keys())]
        return found
    offsets = numbers % SHARD_ROWS * RECORD_BYTES
    if name == "parts":
        parts = np.zeros(len(numbers), PARTS)
        parts["offset"], parts["length"] = offsets, RECORD_BYTES
        parts["crc32c"] = checksums()[numbers % PERIOD]
        return parts
    rows = np.zeros(len(numbers), ROWS)
    rows["key_end"], rows["part_end"] = (numbers + 1) * KEY_BYTES, numbers + 1
    rows["shard"], rows["label"] = numbers % PERIOD // SHARD_ROWS, NONE
    rows["offset"], rows["length"] = offsets, RECORD_BYTES
    return rows


def blocks() -> _Array:
    firsts = np.arange(0, SAMPLES_IN_ALL, BLOCK_ROWS)
    found = np.zeros(len(firsts), BLOCKS)
    found["key_start"], found["part_start"] = firsts * KEY_BYTES, firsts
    for number in {at // BLOCK_ROWS + more for at in READ for more in (0, 1)} - {len(firsts)}:
        first = number * BLOCK_ROWS
        for role, size in (("rows", 1), ("parts", 1), ("keys", KEY_BYTES)):
            own = items(role, first * size, (first + BLOCK_ROWS) * size)
            found[f"{role}_crc32c"][number] = checksum(own)
    return found


LENGTHS = {"rows": SAMPLES_IN_ALL, "parts": SAMPLES_IN_ALL, "keys": SAMPLES_IN_ALL * KEY_BYTES}


class Tail(io.BytesIO):
    """A file of which only what follows some bytes exists."""

    def __init__(self, before: int) -> None:
        super().__init__()
        self._before = before

    def tell(self) -> int:
        return self._before + super().tell()

    def seek(self, offset: int, whence: int = 0) -> int:
        return super().seek(offset if whence else offset - self._before, whence)


def tail_of(small: dict[str, _Array]) -> tuple[int, bytes]:
    """What an index ends with, and the number of bytes before that."""
    infos = []
    start = 0
    for name, length in LENGTHS.items():
        info = zipfile.ZipInfo(f"{name}.npy")
        info.CRC, info.header_offset, start = 0, start, start + 128
        info.file_size = info.compress_size = HEADER_BYTES + length * ITEMS[name].itemsize
        start += info.file_size + -info.file_size % 64
        infos.append(info)
    tail = Tail(start)
    with zipfile.ZipFile(tail, "w") as archive:
        archive.infolist().extend(infos)
        for name, array in small.items():
            info = zipfile.ZipInfo(f"{name}.npy")
            offset = tail.tell() + 54 + len(info.filename)
            info.extra = struct.pack("<HH", 0, -offset % 64) + bytes(-offset % 64)
            with archive.open(info, "w", force_zip64=True) as file:
                file.write(array_header(array.dtype, len(array)) + array.tobytes())
    return start, tail.getvalue()


class Simulated(MemoryStore):
    """Answers documents, ranges of columns and any shard; counts requests and bytes."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "larder/d")
        self.requests: list[tuple[str, int]] = []
        self.before, self.tail = 0, b""

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        name = key.rpartition("/")[2]
        if name.endswith(".npz"):
            assert length is not None
            name, data = self._index(offset, length)
            reader, size_bytes = BytesReader(ObjectInfo(key, self.before, "", 0), data), length
        else:
            reader = super().open(key, offset=offset, length=length, if_match=if_match)
            left = reader.info.size_bytes - offset
            size_bytes = left if length is None else min(length, left)
        self.requests.append((name, size_bytes))
        return reader

    def _index(self, offset: int, length: int) -> tuple[str, bytes]:
        """Bytes of the index, and what they are of."""
        if offset >= self.before:
            start = offset - self.before
            return "tail.npz", self.tail[start : start + length]
        members = read_directory(self.tail, self.before + len(self.tail))
        name = max(LENGTHS, key=lambda name: (members[name].offset <= offset, members[name].offset))
        size = ITEMS[name].itemsize
        start = (offset - members[name].offset - HEADER_BYTES) // size
        return f"{name}.npz", items(name, start, start + length // size).tobytes()


@pytest.fixture(scope="module")
def small() -> dict[str, _Array]:
    """The arrays that are read as a whole."""
    names = [f"d-train-{shard:06}.bin".encode() for shard in range(SHARDS)]
    digests = np.zeros(0, digests_dtype(1, 1, 1))
    exts = np.array([b"bin"])
    return {"digests": digests, "names": np.array(names), "exts": exts, "blocks": blocks()}


@pytest.fixture
def store(small: dict[str, _Array]) -> Iterator[Simulated]:
    name = uuid.uuid4().hex
    store = Simulated(name)
    store.before, store.tail = tail_of(small)
    key = layout.index_key(SEGMENT, "rows", "0" * 64)
    files = (StoredFile(key, store.before + len(store.tail), "0" * 64, "rows"),)
    options = FormatOptions(layout=Layout({"bin": RECORD_BYTES}, labelled=False))
    count = SAMPLES_IN_ALL // SHARD_ROWS
    segment = SegmentDocument(
        dataset="d",
        id=SEGMENT,
        shape=Shape("records", 1, 150_000_000, {}, None, options),
        validate="none",
        splits={"train": SegmentSplit(SAMPLES_IN_ALL, count, 8, 0, 0, count)},
        files=files,
    )
    pattern = layout.shard_key(SEGMENT, "train", f"d-train-{{000000..{count - 1:06}}}.bin")
    live = SAMPLES_IN_ALL - OMITTED.count
    version = VersionDocument(
        dataset="d",
        id=VERSION,
        digest="0" * 64,
        inputs="0" * 64,
        segments=(SegmentUse(SEGMENT, {"train": OMITTED}),),
        splits={"train": SplitFacts(live, count, 8, (pattern,), OMITTED.count)},
        classes=(),
        files=files,
        cache=None,
    )
    store.put(layout.segment_key(SEGMENT), seal(segment))
    store.put(layout.version_key(VERSION), seal(version))
    for shard in range(SHARDS):
        first = shard * SHARD_ROWS
        data = b"".join(record(row) for row in range(first, first + SHARD_ROWS))
        store.put(layout.shard_key(SEGMENT, "train", f"d-train-{shard:06}.bin"), data)
    with mock.patch.object(larder.readers.access, "open_store", return_value=store):
        yield store
    forget(name)


def opened(store: Simulated) -> Data:
    return larder.open(f"{store.url.removesuffix('larder/d/')}larder/d@{VERSION}")


def expected(number: int) -> tuple[str, dict[str, bytes]]:
    row = (number if number < 70_000 else number + OMITTED.count) % PERIOD
    return f"data/{row:06}", {"bin": record(row)}


def names(store: Simulated) -> list[str]:
    """The kinds of the files that were requested, in order."""
    return [name.rpartition(".")[2] for name, _ in store.requests]


def requested_bytes(store: Simulated, *kinds: str) -> int:
    return sum(size for name, size in store.requests if name.startswith(kinds))


def test_opening_reads_one_document(store):
    data = opened(store)
    assert data.splits["train"].samples == SAMPLES_IN_ALL - 3 > 244_000_000
    ((name, size_bytes),) = store.requests
    assert (name, size_bytes < 3_000) == ("version.json", True)


@pytest.mark.parametrize(("start", "count"), STARTS)
def test_samples_take_the_index_rows_and_bytes_of_their_own(store, start, count):
    data = opened(store)
    found = list(data.samples("train", start, start + count))
    assert [(sample.key, sample.parts) for sample in found] == [
        expected(number) for number in range(start, start + count)
    ]
    read = 2 if start == STARTS[-1][0] else 1  # blocks, which are as long as shards
    assert names(store)[:2] == ["json", "json"]
    assert names(store).count("bin") == read  # one request for each shard
    assert names(store).count("npz") == 2 + 3 * read
    assert len(store.requests) == 4 + 4 * read
    assert requested_bytes(store, "version", "segment") < 6_000
    row_bytes = ROWS.itemsize + PARTS.itemsize + KEY_BYTES
    assert requested_bytes(store, *LENGTHS) == read * BLOCK_ROWS * row_bytes
    assert requested_bytes(store, "tail") < SAMPLES_IN_ALL / BLOCK_ROWS * 33
    assert requested_bytes(store, "d-train") <= read * SHARD_ROWS * RECORD_BYTES


def test_nothing_is_read_before_it_is_asked_for(store):
    samples = opened(store).samples("train", 1_000_000)
    assert "npz" not in names(store)
    assert next(samples).key == expected(1_000_000)[0]
    before = len(store.requests)
    for number in range(1_000_001, 1_000_500):
        assert next(samples).key == expected(number)[0]
    assert len(store.requests) - before <= 1  # the next shard


def test_memory_is_that_of_a_block(store):
    samples = opened(store).samples("train", 150_000_000)
    tracemalloc.start()
    for _ in range(10_000):
        next(samples)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 16 << 20


def test_samples_that_do_not_exist(store):
    data = opened(store)
    assert list(data.samples("train", SAMPLES_IN_ALL)) == []
    assert list(data.samples("train", 7, 7)) == []
    assert len(list(data.samples("train", SAMPLES_IN_ALL - 4, 10**12))) == 1
    for start, stop in ((-1, None), (0, -1)):
        with pytest.raises(ConfigError):
            data.samples("train", start, stop)
