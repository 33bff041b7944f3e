from __future__ import annotations

import json
from typing import Any

import pytest

from larder.cache.schema import DTYPES, Field, RecordSchema
from larder.errors import FatalError

SCHEMA = RecordSchema(
    (
        Field("label", "int64"),
        Field("image", "uint8", (None, 8, 3)),
        Field("größe", "float32", (2,), optional=True),
    )
)


def test_the_document_is_canonical_json() -> None:
    small = RecordSchema((Field("x", "uint8", (None, 2)),))
    assert small.document() == (
        b'{"fields":[{"dtype":"uint8","name":"x","optional":false,"shape":[null,2]}],'
        b'"format":"larder-cache-1","lmdb":"0.9"}'
    )


def test_the_content_does_not_name_lmdb() -> None:
    assert b"lmdb" not in SCHEMA.content()
    assert json.loads(SCHEMA.document()) == {**json.loads(SCHEMA.content()), "lmdb": "0.9"}


def test_a_schema_comes_back() -> None:
    assert RecordSchema.parse(SCHEMA.document(), "here") == SCHEMA


@pytest.mark.parametrize("dtype", ["object", "U4", "complex64", "datetime64[s]", "<i8", "", "int"])
def test_other_dtypes_are_refused(dtype: str) -> None:
    with pytest.raises(FatalError, match="allowed are bool, float16") as caught:
        Field("x", dtype)
    assert caught.value.code == "cache.schema"
    assert dtype not in DTYPES


@pytest.mark.parametrize("shape", [(-1,), (1 << 32,), (True,), (1.0,), ("2",)])
def test_other_shapes_are_refused(shape: Any) -> None:
    with pytest.raises(FatalError, match="cannot have the shape"):
        Field("x", "int8", shape)


@pytest.mark.parametrize("name", ["", "\udc80", 3])
def test_other_names_are_refused(name: Any) -> None:
    with pytest.raises(FatalError, match="not a valid field name"):
        Field(name, "int8")


def test_names_are_unique_and_there_is_one() -> None:
    with pytest.raises(FatalError, match="duplicate field 'x'"):
        RecordSchema((Field("x", "int8"), Field("x", "int8", (1,))))
    with pytest.raises(FatalError, match="at least one field"):
        RecordSchema(())


def test_select_returns_fields_in_the_requested_order() -> None:
    assert [field.name for field in SCHEMA.select(["image", "label"])] == ["image", "label"]
    assert SCHEMA.select(None) == SCHEMA.fields
    with pytest.raises(KeyError):
        SCHEMA.select(["nope"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "larder-cache-2"}, "the format is larder-cache-2 of LMDB 0.9, not"),
        (
            {"lmdb": "1.0"},
            "the format is larder-cache-1 of LMDB 1.0, not larder-cache-1 of LMDB 0.9",
        ),
        ({"fields": []}, "invalid schema"),
        ({"fields": [{"name": "x"}]}, "invalid schema"),
        ({"fields": 3}, "invalid schema"),
    ],
)
def test_unreadable_documents_are_refused(change: dict[str, Any], message: str) -> None:
    document = json.dumps({**json.loads(SCHEMA.document()), **change}).encode()
    with pytest.raises(FatalError, match=message) as caught:
        RecordSchema.parse(document, "here.mdb")
    assert caught.value.code == "cache.format"
    assert caught.value.where == "here.mdb"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"3", b"{}", b"\xff"])
def test_no_schema_at_all(data: bytes) -> None:
    with pytest.raises(FatalError, match="cannot be parsed"):
        RecordSchema.parse(data, "here.mdb")
