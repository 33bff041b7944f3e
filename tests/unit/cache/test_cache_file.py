"""Building a cache file, finding its records and reading them back.

Any records, and batches of many files: tests/property/test_property_cache.py.
"""

import hashlib
import os
import pickle
import shutil
import weakref
from collections.abc import Iterator, Mapping
from itertools import chain, repeat
from pathlib import Path
from traceback import TracebackException
from typing import Any

import numpy as np
import pytest

from larder.cache import cache_file_build
from larder.cache.cache_file_build import build_file
from larder.cache.cache_record import CacheFileFacts, Codec, ContentDigest, empty_columns
from larder.cache.file import CacheFileReader, open_file
from larder.cache.group import Groups, group_ends, group_value, grouped, groups_value
from larder.cache.schema import Field, RecordSchema
from larder.disk import unused
from larder.errors import DamageError
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


def test_the_map_grows_and_loses_nothing(tmp_path, monkeypatch):
    wanted = build(tmp_path / "b.mdb", 1000)
    monkeypatch.setattr(cache_file_build, "MAP_BYTES", 1 << 16)
    monkeypatch.setattr(cache_file_build, "TRANSACTION_BYTES", 1 << 15)
    facts = build(tmp_path / "a.mdb", 1000)
    assert facts.digest == wanted.digest
    with open_file(tmp_path / "a.mdb", facts) as reader:
        assert reader.schema == SCHEMA
        for number, record in enumerate(reader):
            assert_record(record, number)


def test_the_file_is_never_larger_than_the_budget(tmp_path):
    facts = build(tmp_path / "a.mdb", 500)
    assert build(tmp_path / "b.mdb", 500, limit_bytes=facts.bytes) == facts
    for less in ({"limit_bytes": facts.bytes - 1}, {"limit_bytes": facts.bytes, "used_bytes": 1}):
        with larder_error("run.endless"):
            build(tmp_path / "c.mdb", 500, **less)
    assert not (tmp_path / "c.mdb").exists()


@pytest.mark.parametrize("number", [-1, 100])
def test_a_record_that_does_not_exist_is_refused(file, number):
    for read in (lambda: file[number], lambda: file.read_into({}, [0], [number])):
        with pytest.raises(IndexError, match=f"record {number} of 100"):
            read()


def test_a_part_of_the_disk_stays_free(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1_000_000))
    build(tmp_path / "a.mdb", 10, reserve_bytes=500_000)
    with larder_error("store.full"):
        build(tmp_path / "b.mdb", 10, reserve_bytes=1_000_000)
    frees = chain([1_000_000], repeat(400_000))  # others write meanwhile
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=next(frees)))
    monkeypatch.setattr(cache_file_build, "TRANSACTION_BYTES", 1)
    with larder_error("store.full"):
        build(tmp_path / "b.mdb", 10, reserve_bytes=500_000)
    assert os.listdir(tmp_path) == ["a.mdb"]


@pytest.mark.parametrize("size", [1_000, 2_026, 4_077, 10_000, 65_540, 99_989, 99_999, 200_000])
@pytest.mark.parametrize("shape", [False, True], ids=["ragged", "fixed"])
def test_a_file_is_little_larger_than_its_records(tmp_path, size, shape):
    """On pages of 4 KiB, whatever is left of the last one of a value."""
    schema = RecordSchema((Field("x", "uint8", (size if shape else None,)),))
    count = 3_000_000 // size
    rows = ({"x": bytes(size)} for _ in range(count))
    path = tmp_path / "a.mdb"
    facts = build_file(Codec(schema).encode_each(rows), schema, path)
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


RECORDS = [b"first", b"second", b"3rd"]
VALUE = group_value(RECORDS, is_fixed=False)
MEMORY = memoryview(b"before" + VALUE + b"after")


def test_groups_are_as_large_as_they_have_to_be_and_a_large_record_is_one():
    sizes = [[3], [10], [4, 4, 4], [12], [2]]
    groups = grouped(map(bytes, chain.from_iterable(sizes)), 10)
    assert [[*map(len, group)] for group in groups] == sizes


@pytest.mark.parametrize(
    ("begin", "length"),
    [(6, 1 << 40), (6, len(VALUE) + 6), (-1, len(VALUE)), (1 << 40, len(VALUE)), (6, 15), (6, 0)],
)
@pytest.mark.parametrize("record_bytes", [None, 100])
def test_a_group_that_is_not_in_the_file_is_damage(begin, length, record_bytes):
    groups = Groups(np.array([3]), MEMORY, lambda *_: (begin, length), record_bytes)
    with larder_error("damage.record", "record 1"):
        groups.places(np.array([1, 2]))
    with larder_error("damage.record", "record 1"):
        groups.record(1)


def test_a_group_without_bytes_is_damage():
    """Such a value may be at the end of the file, beyond which nothing can be read."""
    groups = Groups(np.array([1]), MEMORY, lambda *_: (len(MEMORY), 0), None)
    with larder_error("damage.record", "record 0"):
        groups.places(np.array([0]))


@pytest.mark.parametrize("ends", [[5, 4], [-1, 4], [1 << 62, -(1 << 62), 4]])
def test_numbers_of_records_that_do_not_rise_are_damage(ends):
    assert group_ends(groups_value([0, 2, 2, 4], "x"), "x").tolist() == [0, 2, 2, 4]
    with pytest.raises(DamageError):
        group_ends(groups_value(ends, "x"), "x")


def cache_file(folder: Path, *, damaged: bool = False) -> CacheFileReader:
    path, schema = folder / "0.mdb", RecordSchema((Field("x", "int64", (3, 4)),))
    records = Codec(schema).encode_each({"x": np.full((3, 4), -7 - n)} for n in range(9))
    facts = build_file(records, schema, path)
    if damaged:
        second, other = (number.to_bytes(8, "little", signed=True) for number in (-8, -16))
        path.write_bytes(path.read_bytes().replace(second, other))
    return open_file(path, facts)


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("stacked", [True, False])
def test_a_report_of_damage_may_show_all_variables(tmp_path, closed, stacked):
    """Not all of the memory in which records are found is that of the file."""
    reader = cache_file(tmp_path, damaged=True)
    column = np.empty((3, 3, 4), np.int64) if stacked else [None] * 3
    with larder_error("damage.record", f"{reader.path}, record 1") as caught:
        reader.read_into({"x": column}, [0, 1, 2], [0, 1, 2])
    if closed:
        reader.close()
    report = "".join(TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert "places" in report


def test_columns_of_any_strides_are_filled(tmp_path):
    with cache_file(tmp_path) as reader:
        (wanted,) = empty_columns(reader.schema.fields, 9).values()
        reader.read_into({"x": wanted}, range(9), range(9))
        for column in (
            np.zeros((9, 4, 3), "i8").transpose(0, 2, 1),
            np.zeros((9, 3, 8))[:, :, ::2],
        ):
            reader.read_into({"x": column}, range(9), range(9))
            np.testing.assert_array_equal(column, wanted)


def test_a_file_that_is_closed_while_it_is_read_is_read_to_the_end(tmp_path):
    class Column(list):
        def __setitem__(self, *item: Any) -> None:
            reader.close()
            super().__setitem__(*item)

    reader = cache_file(tmp_path)
    column = Column([None] * 9)
    reader.read_into({"x": column}, range(9), range(9))
    assert [value[0, 0] for value in column] == [-7 - n for n in range(9)]
    with unused(reader.path) as is_closed:
        assert is_closed


def test_a_closed_file_is_not_read(tmp_path):
    reader = cache_file(tmp_path)
    reader.close()
    for read in (lambda: reader[0], lambda: reader.read_into({}, [], []), reader.verify):
        with pytest.raises(ValueError, match="closed"):
            read()


def test_values_are_not_held_while_the_next_are_made():
    made: list[weakref.ref[Any]] = []

    def row() -> dict[str, Any]:
        assert not any(each() is not None for each in made)
        array = np.zeros(9, np.uint8)
        made.append(weakref.ref(array))
        return {"x": array}

    codec = Codec(RecordSchema((Field("x", "uint8", (9,)),)))
    assert len(list(codec.encode_each(row() for _ in range(3)))) == len(made) == 3
