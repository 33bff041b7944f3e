import hashlib
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from larder.manifest import row_digest as rows_module
from larder.manifest.digest import canonical_json
from larder.manifest.extents import (
    Extent,
    extent_etags,
    in_object,
    in_own,
    is_derived,
    is_own,
    parse_extent,
)
from larder.manifest.row_digest import RowDigest

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("number", pa.int64()),
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
    st.none() | st.integers(0, 2**32 - 1),
    st.none() | st.lists(st.none() | st.integers(-5, 5), max_size=3),
    st.none() | pairs,
    st.none() | st.lists(st.none() | pairs, max_size=3),
)


def batch(values: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*values, strict=True) if values else [[] for _ in schema]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def encoded(value: Any) -> str:
    """One field, by the table of the module."""
    if value is None:
        return "~"
    if isinstance(value, str):
        return f"{len(value.encode())}:{value}"
    if isinstance(value, int):
        return f"i{value},"
    items = "".join(map(encoded, value))
    return f"[{items}]" if isinstance(value, list) else f"({items})"


@given(st.lists(rows, max_size=8), st.integers(0, 8))
@example([("é", -3, None, None, ("b", 1), None)], 0)
def test_the_bytes_are_those_of_the_table(values, cut):
    digest = RowDigest()
    whole = batch(values, SCHEMA)
    with mock.patch.object(rows_module, "_SLICE_ROWS", 3):
        digest.update_batch(whole.slice(0, cut))
        digest.update_batch(whole.slice(cut))
    expected = "".join(f"{''.join(map(encoded, row))};" for row in values)
    assert digest.hexdigest() == hashlib.sha256(expected.encode()).hexdigest()


def test_canonical_json():
    assert canonical_json({"b": [1, None], "a": "é"}) == '{"a":"é","b":[1,null]}'.encode()
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(float("nan"))


NUMBERS = st.integers(0, 2**63 - 1)


def one(offset: int, length: int, end: str) -> str:
    numbers = (pa.array([number], pa.int64()) for number in (offset, length))
    (etag,) = extent_etags(*numbers, end).to_pylist()
    return str(etag)


@given(NUMBERS, NUMBERS, st.text(min_size=1), st.text(st.characters(exclude_categories=["Cs"])))
def test_an_etag_says_where_in_which_object(offset, length, key, etag):
    found = parse_extent(one(offset, length, in_object(key, etag)))
    assert found == Extent(offset, length, len(key), etag, "")
    assert found.container(f"{key}/member.jpg") == key


@given(NUMBERS, NUMBERS, st.from_regex(r"[0-9a-f]{32}\.jsonl", fullmatch=True))
def test_an_etag_says_where_in_which_container_of_larders_own(offset, length, name):
    found = parse_extent(one(offset, length, in_own(name)))
    assert found == Extent(offset, length, 0, "", name)
    assert found.container("any/key.json") == name


ORDINARY = [
    "",
    "d41d8cd98f00b204e9800998ecf8427e",
    "d41d8cd98f00b204e9800998ecf8427e-3",
    "18a2f-1c-2f",
    "CKih16GjycICEAE=",
    "@1+2",
    "@1+2/x:e",
    "@-1+2/3:e",
    "@1+2=",
    "@1+2=a/b",
    "x@1+2/3:e",
    f"@{'9' * 20}+2/3:e",
    "@١+2/3:e",
]


@pytest.mark.parametrize("etag", [None, *ORDINARY])
def test_other_etags_are_of_ordinary_objects(etag):
    assert parse_extent(etag) is None


def test_columns_are_told_apart():
    derived = ["@1+2/3:e", "@1+2=a.jsonl", "@0+0/1:"]
    etags = pa.array([*derived, *(etag for etag in ORDINARY if not etag.startswith("@1+2="))])
    found = is_derived(etags).to_pylist()
    assert (found[:3], set(found[3:])) == ([True] * 3, {False})
    assert is_own(etags).to_pylist()[:3] == [False, True, False]
