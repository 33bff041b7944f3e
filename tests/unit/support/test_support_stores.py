"""The stores of tests/support/stores.py: acts before calls, and conditions."""

import uuid

import pytest

from larder.errors import StoreError
from larder.store import open_store
from larder.store.base import Store
from tests.support.stores import (
    Meanwhile,
    MeanwhileStore,
    UnconditionalStore,
)


@pytest.fixture
def inner() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}/", retry=None)


def test_it_happens_right_before_the_call_and_as_often_as_planned(inner):
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


def test_one_call_is_followed_by_one_act(inner):
    """An act that makes the same call lets the next one happen, and so on, before its own."""
    meanwhile, seen = Meanwhile(), []
    for name in "ab":
        meanwhile.before("put", "k", lambda name=name: seen.append(name))
    store = MeanwhileStore(inner, meanwhile)
    store.put("k", b"1")
    assert seen == ["a"]
    store.put("k", b"2")
    assert seen == ["a", "b"]


def test_conditions_are_ignored_or_refused(inner):
    first = inner.put("k", b"1")
    ignoring = UnconditionalStore(inner)
    ignoring.put("k", b"2", if_absent=True)
    ignoring.put("k", b"3", if_match=first.etag)
    assert inner.get("k") == b"3"
    refusing = UnconditionalStore(inner, refuses=True)
    for condition in ({"if_absent": True}, {"if_match": first.etag}):
        with pytest.raises(StoreError) as caught:
            refusing.put("k", b"4", **condition)  # type: ignore[arg-type]
        assert caught.value.code == "store.refused"
    refusing.put("k", b"5")
    assert inner.get("k") == b"5"
