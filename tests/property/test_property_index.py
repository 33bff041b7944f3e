"""What is read from the columns of a segment is what was written, and any flipped bit is found."""

import tempfile
import uuid
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from larder.errors import DamageError
from larder.manifest.digest import sha256_hex
from larder.manifest.schemas import INDEXED
from larder.manifest.sealed import StoredFile
from larder.samples.indexed import IndexedSample, read_index
from larder.segments import index_writer
from larder.store.local.store import LocalStore
from larder.versions import index, layout
from larder.versions.arrays import HEADER_BYTES, array_header, read_directory, write_archive
from larder.versions.documents import SegmentDocument, SegmentSplit, Shape
from larder.versions.index import SegmentIndex, Shard, read_shards
from tests.support.errors import larder_error
from tests.support.memory import MemoryStore, forget
from tests.support.packing import write_index

ARRAYS = ("rows", "parts", "keys", "digests", "names", "exts", "blocks")


def shard_file(split: str, name: str, size_bytes: int, sha256: str) -> StoredFile:
    return StoredFile(layout.shard_key("s", split, name), size_bytes, sha256, "shard")


FILES = (
    shard_file("train", "groesse-0.rec", 12, "ab" * 32),
    shard_file("train", "groesse-0.idx", 7, "00" * 32),
)
OF_READER = StoredFile("segments/s/index/dali/train/groesse-0.idx", 9, "cd" * 32, "dali")
SHARDS = [
    Shard("s", "train", 0, 3, 0, FILES, (OF_READER,)),
    Shard("s", "train", 3, 1, 4, (shard_file("train", "y", 5, "00" * 31 + "01"),)),
    Shard("s", "other", 4, 1, 5, (shard_file("other", "x", 1, "01" * 32),)),
]
BIG = st.integers(0, 2**57)
TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=9)
PARTS = st.builds(
    lambda ext, offset, length, crc32c: {
        "ext": ext,
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
        "key": TEXT,
        "shard": st.sampled_from(["x", "y", "groesse-0.rec"]),
        "offset": BIG,
        "length": BIG,
        "label": st.none() | st.integers(0, 2**31 - 1),
        "parts": st.lists(PARTS, min_size=1, max_size=4),
    }
)


def put_columns(store: MemoryStore, batches: list[pa.RecordBatch]) -> SegmentDocument:
    """Write the columns of a segment as the index step does."""
    with tempfile.TemporaryDirectory() as folder:
        file = write_index(Path(folder), batches, SHARDS)
        assert [path.name for path in Path(folder).iterdir()] == [file.path.name]
        path = layout.index_key("s", "rows", file.sha256)
        data = file.path.read_bytes()
        store.put(path, data)
    rows = sum(batch.num_rows for batch in batches)
    assert (len(data), sha256_hex(data), rows) == (file.bytes, file.sha256, file.rows)
    return SegmentDocument(
        dataset="d",
        id="s",
        shape=Shape("webdataset", 1, 1, {}, None),
        validate="none",
        splits={"train": SegmentSplit(rows, 1, 1, 0, 0, 1)},
        files=(StoredFile(path, file.bytes, file.sha256, "rows"),),
    )


def read(
    store: MemoryStore, segment: SegmentDocument, first_row: int, rows: int
) -> list[IndexedSample]:
    with tempfile.TemporaryDirectory() as folder:
        columns = SegmentIndex(store, segment.file("rows"), Path(folder), segment.samples)
        assert len(columns.shards("train", 4)) == 2
        return list(columns.samples(np.arange(first_row, first_row + rows)))


@given(
    lots=st.lists(st.lists(SAMPLE, max_size=7), max_size=4),
    block_rows=st.integers(1, 8),
    data=st.data(),
)
def test_columns_are_read_as_they_were_written(lots, block_rows, data):
    store = MemoryStore(name := uuid.uuid4().hex)
    batches = [pa.RecordBatch.from_pylist(rows, schema=INDEXED) for rows in lots]
    expected = list(read_index(batches))
    count = len(expected)
    start = data.draw(st.integers(0, count))
    stop = data.draw(st.integers(start, count))
    with (
        mock.patch.object(index, "BLOCK_ROWS", block_rows),
        mock.patch.object(index_writer, "BLOCK_ROWS", block_rows),
    ):
        segment = put_columns(store, batches)
        rows = pa.Table.from_batches(batches, INDEXED).combine_chunks()
        assert put_columns(store, rows.to_batches(max_chunksize=2)).files == segment.files
        assert read(store, segment, start, stop - start) == expected[start:stop]
        (file,) = segment.files
        content = bytearray(store.get(file.path))
        name_ = data.draw(st.sampled_from(ARRAYS))
        member = read_directory(bytes(content), len(content))[name_]
        place = data.draw(st.integers(HEADER_BYTES, member.bytes))
        if count and place < member.bytes:
            content[member.offset + place] ^= 1 << data.draw(st.integers(0, 7))
            store.put(file.path, bytes(content))
            with pytest.raises(DamageError) as caught:
                read(store, segment, 0, count)
            assert caught.value.where.endswith(file.path)
    forget(name)


@given(lots=st.lists(SAMPLE, min_size=1, max_size=9), data=st.data())
def test_a_damaged_end_of_the_file_is_no_error_of_another_kind(lots, data):
    store = MemoryStore(name := uuid.uuid4().hex)
    segment = put_columns(store, [pa.RecordBatch.from_pylist(lots, schema=INDEXED)])
    (file,) = segment.files
    content = bytearray(store.get(file.path))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(1, 700))
        content[-place] = data.draw(st.integers(0, 255))
    store.put(file.path, bytes(content))
    with suppress(DamageError):
        read(store, segment, 0, len(lots))
    forget(name)


def three_samples(store: MemoryStore) -> tuple[SegmentDocument, dict[str, Any]]:
    part = {"ext": "bin", "offset": 0, "length": 9, "crc32c": 1}
    row = {"shard": "x", "label": 1, "offset": 0, "length": 9, "parts": [part]}
    rows = [row | {"key": f"{n}"} for n in range(3)]
    segment = put_columns(store, [pa.RecordBatch.from_pylist(rows, schema=INDEXED)])
    return segment, dict(np.load(BytesIO(store.get(segment.files[0].path)), allow_pickle=False))


def test_numpy_reads_the_file_alone(tmp_path):
    store = MemoryStore(name := uuid.uuid4().hex)
    segment, arrays = three_samples(store)
    content = store.get(segment.files[0].path)
    members = read_directory(content, len(content))
    assert tuple(arrays) == tuple(members) == ARRAYS
    assert arrays["keys"].tobytes() == b"012"
    for array, member in zip(arrays.values(), members.values(), strict=True):
        items = content[member.offset + HEADER_BYTES : member.offset + member.bytes]
        assert (member.offset % 64, array.tobytes()) == (0, items)
    forget(name)


LIES: list[tuple[str, str, int, Any]] = [
    *(("rows", name, 1, value) for name in ("key_end", "part_end") for value in (-1, 0, 9, 2**62)),
    *(("rows", name, 2, 2) for name in ("key_end", "part_end")),
    *(("rows", "shard", 0, value) for value in (-1, 1)),
    *(("rows", "label", 0, value) for value in (-2, 2)),
    *(("rows", name, 0, -1) for name in ("offset", "length")),
    *(("parts", "ext", 0, value) for value in (-1, 1)),
    *(("parts", "offset", 0, -2), ("parts", "length", 0, -1), ("parts", "length", 0, 2**62)),
    *(("blocks", name, 0, value) for name in ("key_start", "part_start") for value in (-1, 1, 9)),
    *(("names", "", 0, value) for value in (b"../x", b"/x", b"a/b", b"", b"\xff", b"a::pipe:b")),
    *(("digests", "name", 0, value) for value in (b"../x", b"", b"\xff")),
    *(
        ("digests", name, 0, value)
        for name in ("bytes", "samples", "first")
        for value in (-1, 2**53)
    ),
    ("digests", "split", 0, b"../x"),
    *(("digests", "kind", 0, value) for value in (b"../x", b"\xff", b"dali")),
    *(("exts", "", 0, b"\xff"), ("keys", "", 0, 0xFF)),
]


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize(("role", "field", "row", "value"), LIES)
def test_what_is_not_there_is_damage(tmp_path, role, field, row, value, local):
    """With the digests and checksums of somebody who may write to the bucket."""
    memory = MemoryStore(name := uuid.uuid4().hex)
    segment, arrays = three_samples(memory)
    if arrays[role].dtype.kind == "S":
        arrays[role] = arrays[role].astype("S20")
    (arrays[role][field] if field else arrays[role])[row] = value
    for each in ("rows", "parts", "keys"):
        arrays["blocks"][f"{each}_crc32c"] = index.checksum(arrays[each])
    damaged(memory, segment, arrays, tmp_path, local=local)
    forget(name)


@pytest.mark.parametrize("role", ARRAYS)
@pytest.mark.parametrize(
    "header",
    [(np.dtype("<i8"), 10**12), (np.dtype("|S0"), 10**12), (np.dtype("<f4"), 0), (None, 1)],
)
def test_a_header_of_other_items_is_damage(tmp_path, role, header):
    memory = MemoryStore(name := uuid.uuid4().hex)
    segment, arrays = three_samples(memory)
    dtype, length = header
    arrays[role] = array_header(dtype or arrays[role].dtype, length)
    damaged(memory, segment, arrays, tmp_path, local=False)
    forget(name)


def damaged(
    memory: MemoryStore, segment: SegmentDocument, arrays: dict[str, Any], folder: Path, local: bool
) -> None:
    store = LocalStore(folder / "store") if local else memory
    files = {}
    for name, array in arrays.items():
        header = b"" if isinstance(array, bytes) else array_header(array.dtype, len(array))
        files[name] = folder / name
        files[name].write_bytes(header + bytes(array))
    write_archive(folder / "archive", files)
    data = (folder / "archive").read_bytes()
    (file,) = segment.files
    store.put(file.path, data)
    changed = replace(file, bytes=len(data), sha256=sha256_hex(data))

    def read_all() -> None:
        read = SegmentIndex(store, changed, folder, segment.samples, classes=2)
        list(read.samples(np.arange(3)))
        read.shards("train", 4)

    with larder_error("damage.manifest"):
        read_all()


def test_the_files_of_shards_are_read_by_split(tmp_path):
    store = MemoryStore(name := uuid.uuid4().hex)
    segment = put_columns(store, [])
    read = SegmentIndex(store, segment.file("rows"), tmp_path)
    assert read.shards("train", 4) == SHARDS[:2]
    assert read.shards("none", 0) == []
    with larder_error("damage.manifest"):
        read.shards("train", 5)
    assert read_shards(store, segment.file("rows")) == SHARDS
    forget(name)
