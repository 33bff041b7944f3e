from pathlib import Path

import google_crc32c
import pyarrow as pa
import pytest

from larder.manifest.digest import format_crc32c
from larder.manifest.extents import in_object, in_own
from larder.manifest.manifest_files import read_manifest
from larder.manifest.schemas import OBJECTS
from larder.source.expand.containers import INDEX, Indexes, container_name, objects_in
from larder.store import Store, open_store
from larder.store.derived import DerivedObjects
from tests.support.stores import keys_of

NAME = container_name("jsonl", "table.csv", 12, "etag")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "derived"))


def test_what_is_written_is_read_as_objects(store, tmp_path):
    values = [b'{"a":1}', b"", "é".encode(), b"\n\n"]
    with Indexes(store).writer(NAME, tmp_path / "index") as writer:
        writer.add(pa.array(["0.json", "1.json"]), pa.array(values[:2]))
        writer.add(pa.array([], pa.string()), pa.array([], pa.string()))
        writer.add(pa.array(["2.json", "3.bin"]), pa.array(values[2:]))
    assert keys_of(store) == [NAME, f"{NAME}.parquet"]
    assert store.get(NAME) == b"".join(value + b"\n" for value in values)
    (batch,) = objects_in(
        read_manifest(tmp_path / "index", INDEX), in_own(NAME), 7, prefix="table.csv/"
    )
    assert batch.schema == OBJECTS
    rows = batch.to_pylist()
    assert [row["key"] for row in rows] == [
        f"table.csv/{name}" for name in ("0.json", "1.json", "2.json", "3.bin")
    ]
    source = DerivedObjects(open_store(str(tmp_path / "none")), lambda: store)
    assert [source.get(row["key"], if_match=row["etag"]) for row in rows] == values
    checksums = [format_crc32c(google_crc32c.value(value)) for value in values]
    assert [row["checksum"] for row in rows] == checksums
    assert [row["size_bytes"] for row in rows] == list(map(len, values))


def test_an_index_is_read_again(store, tmp_path):
    assert not Indexes(store).fetch(NAME, tmp_path / "copy")
    offsets, sizes = pa.array([512, 9000]), pa.array([3, 4])
    with Indexes(store).writer(NAME, tmp_path / "index") as writer:
        problems = pa.array([None, "the key begins with /"])
        writer.add_ranges(pa.array(["x.jpg", "/x"]), offsets, sizes, problems=problems)
    assert keys_of(store) == [f"{NAME}.parquet"]
    assert Indexes(store).fetch(NAME, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "index").read_bytes()
    (batch,) = objects_in(
        read_manifest(tmp_path / "copy", INDEX), in_object("a.tar", "e"), 0, prefix="a.tar/"
    )
    assert [(row["key"], row["etag"]) for row in batch.to_pylist()] == [
        ("a.tar/x.jpg", "@512+3/5:e")
    ]


def test_a_damaged_index_does_not_count(store, tmp_path):
    with Indexes(store).writer(NAME, tmp_path / "index") as writer:
        writer.add_ranges(pa.array(["x.jpg"]), pa.array([1]), pa.array([2]))
    data = bytearray(store.get(f"{NAME}.parquet"))
    data[len(data) // 3] ^= 1
    for damaged in (bytes(data), b"", bytes(data[:50])):
        store.put(f"{NAME}.parquet", damaged)
        assert not Indexes(store).fetch(NAME, tmp_path / "copy")
