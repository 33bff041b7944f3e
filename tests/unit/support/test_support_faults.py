from __future__ import annotations

import uuid

import pytest

from larder.errors import LarderError, ObjectError, RetryableError, StoreError
from larder.store.memory import MemoryStore
from tests.support.faults import (
    BreakStream,
    ChangeObject,
    FaultyStore,
    FlipBit,
    LoseAnswer,
    Truncate,
    denied,
    full,
    unavailable,
    unreadable,
)


@pytest.fixture
def store() -> FaultyStore:
    store = FaultyStore(MemoryStore(str(uuid.uuid4())))
    store.put("k", b"0123456789")
    return store


def test_the_nth_call_fails_so_many_times(store: FaultyStore) -> None:
    store.add("get", unavailable(), nth=2, times=2)
    outcomes = []
    for _ in range(5):
        try:
            outcomes.append(store.get("k"))
        except RetryableError:
            outcomes.append(b"503")
    assert outcomes == [b"0123456789", b"503", b"503", b"0123456789", b"0123456789"]


def test_a_fault_can_be_for_one_key(store: FaultyStore) -> None:
    store.add("head", unreadable(), key="k", times=None)
    store.put("other", b"")
    store.head("other")
    for _ in range(2):
        with pytest.raises(ObjectError):
            store.head("k")
    store.clear()
    store.head("k")


@pytest.mark.parametrize(
    ("effect", "code"),
    [(denied(), "store.denied"), (full(), "store.full"), (unreadable(), "object.unreadable")],
)
def test_a_write_that_fails_does_nothing(store: FaultyStore, effect: object, code: str) -> None:
    store.add("put", effect)  # type: ignore[arg-type]
    with pytest.raises(LarderError) as caught:
        store.put("new", b"1")
    assert caught.value.code == code
    assert [info.key for page in store.list() for info in page] == ["k"]


def test_a_lost_answer_comes_after_the_deed(store: FaultyStore) -> None:
    store.add("put", LoseAnswer())
    with pytest.raises(RetryableError):
        store.put("new", b"1")
    assert store.get("new") == b"1"


def test_spoilt_bytes(store: FaultyStore) -> None:
    store.add("get", FlipBit(9))
    assert store.get("k") == b"0323456789"
    store.add("get", Truncate(3))
    assert store.get("k") == b"012"
    store.add("open", FlipBit(0))
    assert b"".join(store.open("k")) == b"1123456789"
    store.add("open", BreakStream(4))
    got = []
    with pytest.raises(RetryableError):
        got.extend(store.open("k"))
    assert b"".join(got) == b"0123"


def test_an_object_changes_between_open_and_the_end(store: FaultyStore) -> None:
    store.add("open", ChangeObject(b"other"))
    store.open("k")
    assert store.get("k") == b"other"


def test_writers_and_listings_fail_too(store: FaultyStore) -> None:
    store.add("write", full(), nth=2)
    writer = store.writer("w")
    writer.write(b"1")
    with writer, pytest.raises(StoreError):
        writer.write(b"2")
    store.add("commit", LoseAnswer())
    with store.writer("w") as writer, pytest.raises(RetryableError):
        writer.commit()
    store.head("w")
    store.add("list", unavailable())
    with pytest.raises(RetryableError):
        next(store.list())
