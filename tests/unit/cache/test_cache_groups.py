"""Finding the records of a file, whatever LMDB says of its values."""

from pathlib import Path
from traceback import TracebackException
from typing import Any

import numpy as np
import pytest

from larder.cache.build import build_file
from larder.cache.file import CacheFileReader, open_file
from larder.cache.group import Groups, group_ends, group_value, groups_value
from larder.cache.record import Codec, empty_columns
from larder.cache.schema import Field, RecordSchema
from larder.disk import unused
from larder.errors import DamageError
from tests.support.errors import larder_error

RECORDS = [b"first", b"second", b"3rd"]
VALUE = group_value(RECORDS, is_fixed=False)
MEMORY = memoryview(b"before" + VALUE + b"after")


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
    facts = build_file(records, schema, path, limit_bytes=None)
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
