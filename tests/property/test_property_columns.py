"""What is read from the columns of a segment is what was written, and any flipped bit is found."""

import tempfile
import uuid
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from larder.errors import DamageError
from larder.manifest.schemas import SAMPLES
from larder.samples.indexed import IndexedSample, read_index
from larder.segments import columns as written
from larder.versions import columns, layout
from larder.versions.columns import HEADER_BYTES, SegmentColumns, Shard, ShardFile
from larder.versions.documents import FileFacts, SegmentDocument, SegmentSplit, Shape
from tests.support.memory import MemoryStore, forget

BIG = st.integers(0, 2**57)
TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=9)
PARTS = st.builds(
    lambda ext, offset, length, crc32c: {
        "ext": ext,
        "source": "s",
        "etag": "e",
        "offset": offset,
        "length": length,
        "crc32c": crc32c,
    },
    TEXT,
    st.none() | BIG,
    BIG,
    st.integers(0, 2**32 - 1),
)
SAMPLE = st.fixed_dictionaries(
    {
        "id": st.just(0),
        "split": st.just("train"),
        "key": TEXT,
        "segment": st.just("s"),
        "shard": st.sampled_from(["x", "y", "groesse-0.rec"]),
        "offset": BIG,
        "length": BIG,
        "label": st.none() | st.integers(0, 2**31 - 1),
        "parts": st.lists(PARTS, min_size=1, max_size=4),
    }
)


def put_columns(store: MemoryStore, batches: list[pa.RecordBatch]) -> SegmentDocument:
    """Write the columns of a segment as the index step does."""
    facts = []
    with tempfile.TemporaryDirectory() as folder:
        with written.ColumnsWriter(Path(folder)) as writer:
            for batch in batches:
                writer.append(batch)
            writer.add_file("train", "groesse-0.rec", 12, 3, "ab" * 32)
            writer.add_file("train", "groesse-0.idx", 7, 0, "00" * 32)
            writer.add_file("other", "x", 1, 1, "01" * 32)
            writer.add_file("train", "y", 5, 1, "00" * 31 + "01")
            files = writer.finish()
        assert tuple(files) == layout.COLUMNS
        for role, file in files.items():
            path = layout.index_key("s", role, file.sha256)
            data = file.path.read_bytes()
            store.put(path, data)
            assert len(data) == file.bytes
            assert len(np.load(file.path, allow_pickle=False)) == file.rows
            facts.append(FileFacts(path, file.bytes, file.sha256, role))
    rows = sum(batch.num_rows for batch in batches)
    return SegmentDocument(
        dataset="d",
        id="s",
        shape=Shape("webdataset", 1, 1, {}, None),
        validate="none",
        splits={"train": SegmentSplit(rows, 1, 1, 0, 0, 1)},
        files=tuple(facts),
    )


def read(
    store: MemoryStore, segment: SegmentDocument, first_row: int, rows: int
) -> list[IndexedSample]:
    with tempfile.TemporaryDirectory() as folder:
        columns = SegmentColumns(store, segment, Path(folder))
        assert len(list(columns.shards("train"))) == 2
        return list(columns.samples(np.arange(first_row, first_row + rows)))


@given(
    lots=st.lists(st.lists(SAMPLE, max_size=7), max_size=4),
    block_rows=st.integers(1, 8),
    data=st.data(),
)
def test_columns_are_read_as_they_were_written(lots, block_rows, data):
    store = MemoryStore(name := uuid.uuid4().hex)
    batches = [pa.RecordBatch.from_pylist(rows, schema=SAMPLES) for rows in lots]
    expected = list(read_index(batches))
    count = len(expected)
    start = data.draw(st.integers(0, count))
    stop = data.draw(st.integers(start, count))
    with (
        mock.patch.object(columns, "BLOCK_ROWS", block_rows),
        mock.patch.object(written, "BLOCK_ROWS", block_rows),
    ):
        segment = put_columns(store, batches)
        assert read(store, segment, start, stop - start) == expected[start:stop]
        role = data.draw(st.sampled_from(segment.files))
        content = bytearray(store.get(role.path))
        place = data.draw(st.integers(HEADER_BYTES, len(content)))
        if count and place < len(content):
            content[place] ^= 1 << data.draw(st.integers(0, 7))
            store.put(role.path, bytes(content))
            with pytest.raises(DamageError) as caught:
                read(store, segment, 0, count)
            assert caught.value.where.endswith(role.path)
    forget(name)


def test_the_same_samples_give_the_same_bytes_however_they_arrive():
    rows = [
        {
            "id": number,
            "split": "train",
            "key": f"höhe/{number}",
            "segment": "s",
            "shard": f"d-train-{number // 9_000:06}.tar",
            "offset": 10 * number,
            "length": 10,
            "label": number % 3 or None,
            "parts": [{"ext": "bin", "offset": 10 * number, "length": 9, "crc32c": number}],
        }
        for number in range(10_000)
    ]
    digests = []
    for size in (10_000, 333):
        store = MemoryStore(name := uuid.uuid4().hex)
        starts = range(0, len(rows), size)
        batches = [
            pa.RecordBatch.from_pylist(rows[at : at + size], schema=SAMPLES) for at in starts
        ]
        segment = put_columns(store, batches)
        digests.append([file.sha256 for file in segment.files])
        assert read(store, segment, 4_000, 200) == list(read_index(batches))[4_000:4_200]
        forget(name)
    assert digests[0] == digests[1]


def test_the_files_of_shards_are_read_by_split(tmp_path):
    store = MemoryStore(name := uuid.uuid4().hex)
    segment = put_columns(store, [])
    read = SegmentColumns(store, segment, tmp_path)
    first = ShardFile("groesse-0.rec", 12, "ab" * 32), ShardFile("groesse-0.idx", 7, "00" * 32)
    last = ShardFile("y", 5, "00" * 31 + "01")
    assert list(read.shards("train")) == [Shard(3, first), Shard(1, (last,))]
    assert list(read.shards("none")) == []
    forget(name)
