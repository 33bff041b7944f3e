"""Stores for tests of races: what happens before a call, and conditions that are not kept."""

from __future__ import annotations

import uuid

import pytest

from larder.errors import PreconditionError, StoreError
from larder.store import open_store
from larder.store.base import Store
from tests.support.meanwhile import Meanwhile, MeanwhileStore
from tests.support.unconditional import UnconditionalStore


@pytest.fixture
def inner() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}/", retry=None)


def test_it_happens_right_before_the_call_and_as_often_as_planned(inner: Store) -> None:
    meanwhile, seen = Meanwhile(), []

    def act() -> None:
        seen.append([info.key for page in inner.list() for info in page])

    meanwhile.before("put", "tags/", act, times=2)
    one, other = MeanwhileStore(inner, meanwhile), MeanwhileStore(inner, meanwhile)
    one.put("other", b"1")
    assert (seen, meanwhile.waiting) == ([], 2)
    one.put("tags/a", b"1")
    assert (seen, meanwhile.waiting) == ([["other"]], 1)
    other.get("tags/a")
    other.put("tags/b", b"1")
    one.put("tags/c", b"1")
    assert (seen, meanwhile.waiting) == ([["other"], ["other", "tags/a"]], 0)


def test_one_call_is_followed_by_one_act(inner: Store) -> None:
    """An act that makes the same call lets the next one happen, and so on, before its own."""
    meanwhile, seen = Meanwhile(), []
    for name in "ab":
        meanwhile.before("put", "k", lambda name=name: seen.append(name))
    store = MeanwhileStore(inner, meanwhile)
    store.put("k", b"1")
    assert seen == ["a"]
    store.put("k", b"2")
    assert seen == ["a", "b"]


def test_conditions_are_ignored_or_refused(inner: Store) -> None:
    first = inner.put("k", b"1")
    ignoring = UnconditionalStore(inner)
    ignoring.put("k", b"2", if_absent=True)
    ignoring.put("k", b"3", if_match=first.etag)
    assert inner.get("k") == b"3"
    refusing = UnconditionalStore(inner, refuses=True)
    for condition in ({"if_absent": True}, {"if_match": first.etag}):
        with pytest.raises(StoreError, match="501") as caught:
            refusing.put("k", b"4", **condition)  # type: ignore[arg-type]
        assert caught.value.code == "store.refused"
    refusing.put("k", b"5")
    assert inner.get("k") == b"5"


def test_one_of_both_conditions_is_kept(inner: Store) -> None:
    first = inner.put("k", b"1")
    inner.put("k", b"2")
    absent, match = (
        UnconditionalStore(inner, if_absent=True),
        UnconditionalStore(inner, if_match=True),
    )
    with pytest.raises(PreconditionError):
        absent.put("k", b"3", if_absent=True)
    with pytest.raises(PreconditionError):
        match.put("k", b"3", if_match=first.etag)
    absent.put("k", b"4", if_match=first.etag)
    match.put("k", b"5", if_absent=True)
    assert inner.get("k") == b"5"
    assert absent.features.replace_if_match
    assert not UnconditionalStore(inner, says=True).features.replace_if_match
