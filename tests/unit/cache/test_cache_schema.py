import json
from typing import Any

import pytest

from larder.cache.schema import Field, RecordSchema
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
