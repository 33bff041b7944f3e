"""What has to be copied: the table, and one pass over ordered streams."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from larder.store.base import ObjectInfo
from larder.store.etags import is_md5
from larder.transfer.difference import KnownCopy, compare, judge

MD5 = "0" * 31 + "a"
OTHER_MD5 = "0" * 31 + "b"


def info(key: str = "k", size_bytes: int = 1, etag: str = "e") -> ObjectInfo:
    return ObjectInfo(key, size_bytes, etag, 0)


@pytest.mark.parametrize(
    ("source", "mirrored", "known", "md5", "verdict"),
    [
        (info(), None, None, True, "missing"),
        (info(), None, KnownCopy("k", "e", "e", None), True, "missing"),
        (info(size_bytes=1), info(size_bytes=2), KnownCopy("k", "e", "e", None), True, "changed"),
        (info(etag="a"), info(etag="b"), KnownCopy("k", "a", "b", None), False, "same"),
        (info(etag="a2"), info(etag="b"), KnownCopy("k", "a", "b", None), False, "changed"),
        (info(etag="a"), info(etag="b2"), KnownCopy("k", "a", "b", None), False, "changed"),
        (info(etag=MD5), info(etag=MD5), None, True, "same"),
        (info(etag=MD5), info(etag=MD5), None, False, "changed"),
        (info(etag=MD5), info(etag=OTHER_MD5), None, True, "changed"),
        (info(etag="x-2"), info(etag="x-2"), None, True, "changed"),
    ],
)
def test_the_table(
    source: ObjectInfo,
    mirrored: ObjectInfo | None,
    known: KnownCopy | None,
    md5: bool,
    verdict: str,
) -> None:
    assert judge(source, mirrored, known, md5=md5) == verdict


def test_a_multipart_etag_is_not_an_md5() -> None:
    assert is_md5(MD5)
    assert not is_md5(MD5 + "-3")
    assert not is_md5(MD5.upper())


keys = st.text(alphabet="ab/é日\U0001f600", min_size=1, max_size=3)
objects = st.dictionaries(keys, st.tuples(st.integers(0, 2), st.sampled_from([MD5, "x", "y"])))
pairs = st.lists(st.tuples(keys, st.sampled_from([MD5, "x"]), st.sampled_from([MD5, "x", "y"])))


def in_order(found: Mapping[str, tuple[int, str]]) -> list[ObjectInfo]:
    ordered = sorted(found, key=str.encode)
    return [ObjectInfo(key, *found[key], 0) for key in ordered]


@given(objects, objects, pairs)
def test_one_pass_finds_what_look_ups_find(
    source: dict[str, tuple[int, str]],
    mirrored: dict[str, tuple[int, str]],
    known: list[tuple[str, str, str]],
) -> None:
    rows = [KnownCopy(*row, None) for row in sorted(known, key=lambda row: row[0].encode())]
    verdicts = {
        found.key: verdict
        for found, verdict, _, _ in compare(in_order(source), in_order(mirrored), rows, md5=True)
    }
    assert list(verdicts) == [found.key for found in in_order(source)]
    for found in in_order(source):
        there = mirrored.get(found.key)
        expected = "missing"
        if there is not None:
            vouched = (found.key, found.etag, there[1]) in known
            by_md5 = found.etag == there[1] == MD5
            expected = "same" if there[0] == found.size_bytes and (vouched or by_md5) else "changed"
        assert verdicts[found.key] == expected
