"""Building a cache file and reading it back; of any records: tests/property/test_property_cache.py.

Numbers of records, and batches of them: tests/property/test_property_cache_reader.py.
"""

import hashlib
import os
import pickle
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from larder.cache.build import build_file
from larder.cache.file import CacheFileReader, open_file
from larder.cache.record import CacheFileFacts, Codec, ContentDigest
from larder.cache.schema import Field, RecordSchema
from larder.errors import FatalError
from tests.support.errors import larder_error
from tests.support.processes import run_python

SCHEMA = RecordSchema(
    (
        Field("label", "int64"),
        Field("image", "uint8", (None, 4, 1)),
        Field("mask", "float32", (2,), optional=True),
        Field("key", "uint8", (None,)),
    )
)
CODEC = Codec(SCHEMA)
AMPLE_BYTES = 1 << 30


def values(number: int) -> dict[str, Any]:
    record: dict[str, Any] = {
        "label": number,
        "image": np.full((number % 5, 4, 1), number % 251, np.uint8),
        "key": f"key-{number}".encode(),
    }
    if number % 3 == 0:
        record["mask"] = np.array([number, -number], np.float32)
    return record


def build(path: Path, count: int, **options: Any) -> CacheFileFacts:
    options.setdefault("limit_bytes", AMPLE_BYTES)
    return build_file(CODEC.encode_each(map(values, range(count))), SCHEMA, path, **options)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[CacheFileReader]:
    facts = build(tmp_path / "train.mdb", 100)
    with open_file(tmp_path / "train.mdb", facts) as reader:
        yield reader


def assert_record(found: Mapping[str, Any], number: int) -> None:
    wanted = values(number)
    assert found["label"] == number
    assert found["label"].dtype == np.int64
    np.testing.assert_array_equal(found["image"], wanted["image"])
    assert bytes(found["key"]) == wanted["key"]
    if "mask" in wanted:
        np.testing.assert_array_equal(found["mask"], wanted["mask"])
    else:
        assert found.get("mask") is None


def test_content_digest_is_of_schema_and_records(tmp_path):
    facts = build(tmp_path / "a.mdb", 10)
    plain = hashlib.sha256()
    codec = Codec(SCHEMA)
    for item in (SCHEMA.content(), *(codec.encode(values(number))[:-4] for number in range(10))):
        plain.update(len(item).to_bytes(8, "little") + item)
    assert facts.digest == plain.hexdigest()
    assert ContentDigest(SCHEMA).hexdigest() != facts.digest


def test_arrays_belong_to_the_caller(file):
    record = file[3]
    record["image"][:] = 0
    assert_record(file[3], 3)


def test_the_map_grows_and_loses_nothing(tmp_path):
    facts = build(tmp_path / "a.mdb", 1000, map_bytes=1 << 16, transaction_bytes=1 << 15)
    assert facts.digest == build(tmp_path / "b.mdb", 1000).digest
    with open_file(tmp_path / "a.mdb", facts) as reader:
        assert reader.schema == SCHEMA
        for number, record in enumerate(reader):
            assert_record(record, number)


def test_the_file_is_never_larger_than_the_budget(tmp_path):
    facts = build(tmp_path / "a.mdb", 500)
    assert build(tmp_path / "b.mdb", 500, limit_bytes=facts.bytes) == facts
    with pytest.raises(FatalError):
        build(tmp_path / "c.mdb", 500, limit_bytes=facts.bytes - 1)


def test_a_part_of_the_disk_stays_free(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1_000_000))
    build(tmp_path / "a.mdb", 10, reserve_bytes=500_000)
    with larder_error("store.full"):
        build(tmp_path / "b.mdb", 10, reserve_bytes=1_000_000)
    assert os.listdir(tmp_path) == ["a.mdb"]


@pytest.mark.parametrize("size", [1_000, 2_026, 4_077, 10_000, 65_540, 99_989, 99_999, 200_000])
@pytest.mark.parametrize("shape", [False, True], ids=["ragged", "fixed"])
def test_a_file_is_little_larger_than_its_records(tmp_path, size, shape):
    """On pages of 4 KiB, whatever is left of the last one of a value."""
    schema = RecordSchema((Field("x", "uint8", (size if shape else None,)),))
    count = 3_000_000 // size
    rows = ({"x": bytes(size)} for _ in range(count))
    path = tmp_path / "a.mdb"
    facts = build_file(Codec(schema).encode_each(rows), schema, path, limit_bytes=AMPLE_BYTES)
    assert facts.bytes - 5 * 4096 < 1.05 * size * count  # five hold LMDB's trees, and the schema
    with open_file(path, facts) as file:
        columns = {"x": np.ones((count, size), np.uint8)}
        file.read_into(columns, range(count), range(count))
        assert not columns["x"].any()


def test_two_readers_of_one_file_share_it(tmp_path):
    facts = build(tmp_path / "a.mdb", 10)
    os.link(tmp_path / "a.mdb", tmp_path / "b.mdb")
    first = open_file(tmp_path / "a.mdb", facts)
    second = open_file(tmp_path / "b.mdb", facts)
    first.close()
    first.close()
    assert_record(second[4], 4)
    second.close()
    with open_file(tmp_path / "a.mdb", facts) as third:
        assert_record(third[4], 4)


def test_a_reader_is_pickled_as_its_path(file):
    data = pickle.dumps(file)
    assert len(data) < 1000
    with pickle.loads(data) as copy:
        assert_record(copy[42], 42)


FORK = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_cache_file import build, open_file, assert_record
path = Path(sys.argv[2])
part = open_file(path, build(path, 50))
assert_record(part[1], 1)
child = os.fork()
if not child:
    assert_record(part[2], 2)
    part.close()
    with open_file(path, part._facts) as again:
        assert_record(again[4], 4)
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
assert_record(part[3], 3)
"""


def test_a_reader_lives_on_in_a_fork(tmp_path):
    done = run_python("-c", FORK, Path(__file__).parent, tmp_path / "a.mdb")
    assert done.returncode == 0, done.stderr
