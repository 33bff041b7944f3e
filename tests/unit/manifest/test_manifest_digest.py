import hashlib
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from larder.manifest import rows as rows_module
from larder.manifest.digest import canonical_json
from larder.manifest.rows import RowDigest

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("number", pa.int64()),
        ("data", pa.binary()),
        ("small", pa.uint32()),
        ("numbers", pa.list_(pa.int32())),
        ("pair", pa.struct([("a", pa.string()), ("b", pa.int64())])),
        ("pairs", pa.list_(pa.struct([("a", pa.string()), ("b", pa.int64())]))),
    ]
)

texts = st.none() | st.text(max_size=5)
numbers = st.none() | st.integers(-(2**63), 2**63 - 1)
pairs = st.tuples(texts, numbers)
rows = st.tuples(
    texts,
    numbers,
    st.none() | st.binary(max_size=4),
    st.none() | st.integers(0, 2**32 - 1),
    st.none() | st.lists(st.none() | st.integers(-5, 5), max_size=3),
    st.none() | pairs,
    st.none() | st.lists(st.none() | pairs, max_size=3),
)


def batch(values: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*values, strict=True) if values else [[] for _ in schema]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@given(st.lists(rows, max_size=8), st.integers(0, 8))
def test_by_row_and_by_batch_agree(values, cut):
    by_row, by_batch = RowDigest(), RowDigest()
    for row in values:
        by_row.update(*row)
    whole = batch(values, SCHEMA)
    with mock.patch.object(rows_module, "_SLICE_ROWS", 3):
        by_batch.update_batch(whole.slice(0, cut))
        by_batch.update_batch(whole.slice(cut))
    assert by_batch.hexdigest() == by_row.hexdigest()


def test_the_bytes_are_pinned():
    digest = RowDigest()
    digest.update("é", -3, None, b"\0", ["a"], ("b", 1))
    expected = b"2:\xc3\xa9i-3,~b1:\0[1:a](1:bi1,);"
    assert digest.hexdigest() == hashlib.sha256(expected).hexdigest()


def test_canonical_json():
    assert canonical_json({"b": [1, None], "a": "é"}) == '{"a":"é","b":[1,null]}'.encode()
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(float("nan"))
