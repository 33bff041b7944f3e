"""Reading a version of 244,000,000 samples takes what is asked for and no more.

The version is simulated: the end of its index describes 3,724 row groups, all of which are the same
65,536 rows, and its shards, of fixed-size records, are all the same bytes. Everything that reads it
is real; every request and its bytes are counted.
"""

import io
import uuid
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import larder
import larder.readers.data
from larder.config.shape import FormatOptions, Layout
from larder.errors import ConfigError, DamageError
from larder.manifest.digest import sha256_hex
from larder.manifest.files import ROW_GROUP_ROWS, write_manifest
from larder.manifest.schemas import SAMPLES
from larder.manifest.sealed import seal
from larder.readers.data import Data
from larder.store import object_url
from larder.store.base import Reader
from larder.versions import layout
from larder.versions.documents import (
    FileFacts,
    OmittedRows,
    SegmentDocument,
    SegmentSplit,
    SegmentUse,
    Shape,
    SplitFacts,
    VersionDocument,
)
from tests.support.memory import MemoryStore, forget

pytestmark = pytest.mark.exhaustive

GROUPS = 3_724
SAMPLES_IN_ALL = GROUPS * ROW_GROUP_ROWS
RECORD_BYTES = 8
SHARD_ROWS = 4_096
SEGMENT, VERSION = "5" * 32, "7" * 32
OMITTED = OmittedRows(3, ((70_000, 70_003),))


class Simulated(MemoryStore):
    """Answers documents and ranges of the index and of any shard; counts requests and bytes."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "larder/d")
        self.requests: list[tuple[str, int]] = []

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        reader = super().open(key, offset=offset, length=length, if_match=if_match)
        left = reader.info.size_bytes - offset
        self.requests.append(
            (key.rpartition("/")[2], left if length is None else min(length, left))
        )
        return reader


def record(row: int) -> bytes:
    return row.to_bytes(RECORD_BYTES, "little")


def index_rows() -> Iterator[pa.RecordBatch]:
    """One row group: sixteen shards of 4,096 samples."""
    count = ROW_GROUP_ROWS
    numbers = np.arange(count)
    places = pa.array(numbers % SHARD_ROWS * RECORD_BYTES)
    fields = list(SAMPLES.field("parts").type.value_type)
    sizes = pa.array(np.full(count, RECORD_BYTES))
    etags = [sha256_hex(record(row))[:32] for row in range(count)]
    parts = pa.StructArray.from_arrays(
        [
            pa.array(["bin"] * count),
            pa.array([f"data/{row:06}.bin" for row in range(count)]),
            pa.array(etags),
            places,
            sizes,
            pa.array([google_crc32c.value(record(row)) for row in range(count)], pa.uint32()),
        ],
        fields=fields,
    )
    offsets = pa.array(np.arange(count + 1), pa.int32())
    shards = [f"d-train-{row // SHARD_ROWS:06}.bin" for row in range(count)]
    yield pa.RecordBatch.from_arrays(
        [
            pa.array(numbers),
            pa.array(["train"] * count),
            pa.array([f"data/{row:06}" for row in range(count)]),
            pa.array([SEGMENT] * count),
            pa.array(shards),
            places,
            sizes,
            pa.nulls(count, pa.int32()),
            pa.ListArray.from_arrays(offsets, parts, type=SAMPLES.field("parts").type),
        ],
        schema=SAMPLES,
    )


def large_index(folder: Path) -> bytes:
    """A manifest that claims 3,724 row groups."""
    path = write_manifest(folder / "one.parquet", SAMPLES, index_rows()).path
    one = pq.read_metadata(path)
    whole = pq.read_metadata(path)
    for _ in range(GROUPS - 1):
        whole.append_row_groups(one)
    whole.write_metadata_file(folder / "end.parquet")
    rows, end = path.read_bytes(), (folder / "end.parquet").read_bytes()
    return rows[: -one.serialized_size - 8] + end[4:]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return large_index(tmp_path_factory.mktemp("index"))


@pytest.fixture
def store(index: bytes) -> Iterator[Simulated]:
    name = uuid.uuid4().hex
    store = Simulated(name)
    options = FormatOptions(layout=Layout({"bin": RECORD_BYTES}, labelled=False))
    rows = SegmentSplit(SAMPLES_IN_ALL, GROUPS * 16, 8, 0, 0, GROUPS * 16)
    path = layout.index_key(SEGMENT, "samples", sha256_hex(index))
    file = FileFacts(path, len(index), sha256_hex(index), "samples")
    segment = SegmentDocument(
        dataset="d",
        id=SEGMENT,
        shape=Shape("records", 1, 150_000_000, {}, None, options),
        validate="none",
        splits={"train": rows},
        files=(file,),
    )
    pattern = layout.shard_key(SEGMENT, "train", f"d-train-{{000000..{GROUPS * 16 - 1:06}}}.bin")
    live = SAMPLES_IN_ALL - OMITTED.count
    version = VersionDocument(
        dataset="d",
        id=VERSION,
        digest="0" * 64,
        inputs="0" * 64,
        segments=(SegmentUse(SEGMENT, {"train": OMITTED}),),
        splits={"train": SplitFacts(live, GROUPS * 16, 8, (pattern,), OMITTED.count)},
        classes=(),
        files=(file,),
        cache=None,
    )
    store.put(path, index)
    store.put(layout.segment_key(SEGMENT), seal(segment))
    store.put(layout.version_key(VERSION), seal(version))
    for shard in range(16):
        first = shard * SHARD_ROWS
        data = b"".join(record(row) for row in range(first, first + SHARD_ROWS))
        store.put(layout.shard_key(SEGMENT, "train", f"d-train-{shard:06}.bin"), data)
    with mock.patch.object(larder.readers.data, "open_store", return_value=store):
        yield store
    forget(name)


def opened(store: Simulated) -> Data:
    return larder.open(f"{store.url.removesuffix('larder/d/')}larder/d@{VERSION}")


def expected(number: int) -> tuple[str, dict[str, bytes]]:
    row = (number if number < 70_000 else number + OMITTED.count) % ROW_GROUP_ROWS
    return f"data/{row:06}", {"bin": record(row)}


def names(store: Simulated) -> list[str]:
    """The kinds of the files that were requested, in order."""
    return [name.rpartition(".")[2] for name, _ in store.requests]


def test_opening_reads_one_document(store):
    data = opened(store)
    assert data.splits["train"].samples == SAMPLES_IN_ALL - 3 > 244_000_000
    ((name, size_bytes),) = store.requests
    assert (name, size_bytes < 2_000) == ("version.json", True)


@pytest.mark.parametrize(
    ("start", "count"),
    [
        (0, 1),
        (200_000_000, 10),
        (69_998, 5),
        (SAMPLES_IN_ALL - 3 - 7, 7),
        (123 * ROW_GROUP_ROWS - 3 - 2, 4),
    ],
)
def test_samples_take_the_index_rows_and_bytes_of_their_own(store, index, start, count):
    data = opened(store)
    found = list(data.samples("train", start, start + count))
    assert [(sample.key, sample.parts) for sample in found] == [
        expected(number) for number in range(start, start + count)
    ]
    groups = 2 if start == 123 * ROW_GROUP_ROWS - 5 else 1
    assert names(store)[:2] == ["json", "json"]
    assert names(store).count("bin") == groups  # one request for each shard
    # The end of the index takes two: pyarrow first asks for the last 64 KiB.
    assert names(store).count("parquet") <= 2 + 3 * groups
    assert len(store.requests) <= 4 + 4 * groups
    end_bytes = GROUPS * 2_000
    assert sum(size for name, size in store.requests if name.endswith("json")) < 4_000
    whole = sum(size for name, size in store.requests if name.endswith("parquet"))
    rows_bytes = len(index) - end_bytes  # all columns of one row group
    assert whole < end_bytes + (1 << 16) + groups * rows_bytes / 2
    shards = sum(size for name, size in store.requests if name.endswith("bin"))
    assert shards <= groups * SHARD_ROWS * RECORD_BYTES


def test_nothing_is_read_before_it_is_asked_for(store):
    samples = opened(store).samples("train", 1_000_000)
    assert "parquet" not in names(store)
    assert next(samples).key == expected(1_000_000)[0]
    before = len(store.requests)
    for number in range(1_000_001, 1_000_500):
        assert next(samples).key == expected(number)[0]
    assert len(store.requests) - before <= 1  # the next shard


def test_memory_is_that_of_a_row_group(store):
    pool = pa.default_memory_pool()
    held = pool.bytes_allocated()
    samples = opened(store).samples("train", 150_000_000)
    for _ in range(10_000):
        next(samples)
    assert pool.bytes_allocated() - held < 64 << 20


def test_samples_that_do_not_exist(store):
    data = opened(store)
    assert list(data.samples("train", SAMPLES_IN_ALL)) == []
    assert list(data.samples("train", 7, 7)) == []
    assert len(list(data.samples("train", SAMPLES_IN_ALL - 4, 10**12))) == 1
    for start, stop in ((-1, None), (0, -1)):
        with pytest.raises(ConfigError):
            data.samples("train", start, stop)


@pytest.mark.parametrize("damage", ["shorter", "gone", "flipped"])
def test_damage_of_the_index_is_found(store, index, damage):
    infos = [info for page in store.list("segments/") for info in page]
    (path,) = [info.key for info in infos if info.key.endswith(".parquet")]
    if damage == "gone":
        store.delete(path)
    elif damage == "shorter":
        store.put(path, index[:-100_000])
    else:
        keys = pq.read_metadata(io.BytesIO(index)).row_group(0).column(2)
        place = keys.dictionary_page_offset + 1_000
        store.put(path, index[:place] + bytes([index[place] ^ 1]) + index[place + 1 :])
    with pytest.raises(DamageError) as caught:
        list(opened(store).samples("train", 5, 6))
    assert caught.value.where == object_url(store.url, path)
