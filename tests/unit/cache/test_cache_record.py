import numpy as np
import pytest

from larder.cache.record import Codec, Places, empty_columns
from larder.cache.schema import Field, RecordSchema
from larder.errors import DamageError
from tests.support.errors import larder_error

SCHEMA = RecordSchema(
    (
        Field("label", "int16"),
        Field("grid", "uint16", (None, 2), optional=True),
        Field("flag", "bool"),
        Field("key", "uint8", (None,)),
    )
)
CODEC = Codec(SCHEMA)


def test_a_record_is_that_of_its_number_and_its_file():
    values = {"label": 1, "flag": True, "key": b"k"}
    one, other = (Codec(SCHEMA, place) for place in ("segments/a", "segments/b"))
    record = one.encode(values, 300)
    one.check(record, 300)
    for codec, number in ((one, 301), (one, 44), (other, 300)):
        with pytest.raises(DamageError):
            codec.check(record, number)


def test_an_absent_field_takes_one_byte():
    record = CODEC.encode({"label": 0, "flag": False, "key": b""})
    assert record[:-4] == b"\0\0" + b"\0" + b"\0" + b"\0\0\0\0"
    assert CODEC.decode(record).keys() == {"label", "flag", "key"}


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype="u2").reshape(2, 6).T[::2][:, :],
        np.asfortranarray(np.arange(6, dtype="u2").reshape(3, 2)),
    ],
    ids=["strided", "fortran"],
)
def test_the_layout_of_the_array_does_not_matter(array):
    values = {"label": 1, "flag": True, "key": b"k"}
    plain = np.ascontiguousarray(array).astype("<u2")
    record = CODEC.encode({**values, "grid": array})
    assert record == CODEC.encode({**values, "grid": plain})
    np.testing.assert_array_equal(CODEC.decode(record)["grid"], array)


def test_a_record_of_another_length_is_damage():
    record = CODEC.encode(
        {"label": 1, "grid": np.ones((1, 2), np.uint16), "flag": True, "key": b""}
    )
    for other in (*(record[:length] for length in range(len(record) - 1)), record + b"\0"):
        for read in (CODEC.decode, CODEC.check):
            with pytest.raises(DamageError):
                read(other)


def test_damage_is_found_where_all_records_are_of_one_shape():
    codec = Codec(RecordSchema((Field("grid", "uint16", (None, 2)), Field("label", "int8"))), "a")
    values = {"grid": np.ones((3, 2), np.uint16), "label": np.array(7, np.int8)}
    record = codec.encode(values, 4)
    columns = empty_columns([Field("grid", "uint16", (3, 2)), Field("label", "int8")], 2)

    def read(record: bytes) -> None:
        memory = memoryview(record)
        places = Places(memory, *np.array([[4], [0], [len(record)]]))
        codec.read_rows(columns, np.array([1]), places, check=True)

    read(record)
    assert {name: column[1].tolist() for name, column in columns.items()} == {
        "grid": [[1, 1]] * 3,
        "label": 7,
    }
    changed = [bytes(b ^ (n == at) for n, b in enumerate(record)) for at in range(len(record))]
    others = [record[:-1], record + b"\0", codec.encode(values, 5), *changed]
    for other in others:
        with larder_error("damage.record", "record 4"):
            read(other)
