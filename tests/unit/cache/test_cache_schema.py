import json
from typing import Any

import numpy as np
import pytest

from larder.cache.cache_record import Codec, RecordPlaces, empty_columns
from larder.cache.schema import Field, RecordSchema
from larder.errors import DamageError
from tests.support.errors import larder_error

SCHEMA = RecordSchema(
    (
        Field("label", "int64"),
        Field("image", "uint8", (None, 8, 3)),
        Field("größe", "float32", (2,), optional=True),
    )
)


def test_the_document_is_canonical_json():
    small = RecordSchema((Field("x", "uint8", (None, 2)),))
    assert small.document() == (
        b'{"fields":[{"dtype":"uint8","name":"x","optional":false,"shape":[null,2]}],'
        b'"format":"larder-cache-3","lmdb":"0.9"}'
    )
    assert json.loads(small.document()) == {**json.loads(small.content()), "lmdb": "0.9"}


@pytest.mark.parametrize(
    "field",
    [
        *(
            ("x", dtype)
            for dtype in ("object", "U4", "complex64", "datetime64[s]", "<i8", "", "int")
        ),
        *(("x", "int8", shape) for shape in ((-1,), (1 << 32,), (True,), (1.0,), ("2",))),
        *((name, "int8") for name in ("", "\udc80", 3)),
    ],
    ids=ascii,
)
def test_other_fields_are_refused(field):
    with larder_error("cache.schema"):
        Field(*field)


def test_names_are_unique_and_there_is_one():
    for fields in ((), (Field("x", "int8"), Field("x", "int8", (1,)))):
        with larder_error("cache.schema"):
            RecordSchema(fields)


def changed(**fields: Any) -> bytes:
    return json.dumps({**json.loads(SCHEMA.document()), **fields}).encode()


@pytest.mark.parametrize(
    "data",
    [
        changed(format="larder-cache-2"),
        changed(lmdb="1.0"),
        changed(fields=[]),
        changed(fields=[{"name": "x"}]),
        changed(fields=3),
        *(b"", b"{", b"[]", b"3", b"{}", b"\xff"),
    ],
)
def test_unreadable_documents_are_refused(data):
    with larder_error("cache.format", "here.mdb"):
        RecordSchema.parse(data, "here.mdb")


RECORDS = RecordSchema(
    (
        Field("label", "int16"),
        Field("grid", "uint16", (None, 2), optional=True),
        Field("flag", "bool"),
        Field("key", "uint8", (None,)),
    )
)
CODEC = Codec(RECORDS)


def test_a_record_is_that_of_its_number_and_its_file():
    values = {"label": 1, "flag": True, "key": b"k"}
    one, other = (Codec(RECORDS, place) for place in ("segments/a", "segments/b"))
    record = one.encode(values, 300)
    one.check(record, 300)
    for codec, number in ((one, 301), (one, 44), (other, 300)):
        with pytest.raises(DamageError):
            codec.check(record, number)


def test_an_absent_field_takes_one_byte():
    record = CODEC.encode({"label": 0, "flag": False, "key": b""})
    assert record[:-4] == b"\0\0" + b"\0" + b"\0" + b"\0\0\0\0"
    assert CODEC.decode(record).keys() == {"label", "flag", "key"}


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
        places = RecordPlaces(memory, *np.array([[4], [0], [len(record)]]))
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
