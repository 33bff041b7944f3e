import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from larder.manifest.extent_columns import extent_etags, is_derived, is_own
from larder.manifest.extents import Extent, in_object, in_own, parse_extent

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
