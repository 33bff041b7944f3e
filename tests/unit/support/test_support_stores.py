"""The stores of tests/support/stores.py: faults, records, acts before calls, conditions, etags."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from larder.errors import NotFoundError, PreconditionError, StoreError
from larder.store import open_store
from larder.store.base import ObjectInfo, Store
from tests.support.memory import MemoryStore, forget
from tests.support.stores import (
    EncryptedStore,
    Meanwhile,
    MeanwhileStore,
    RecordedCall,
    RecordingStore,
    UnconditionalStore,
)


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


def test_every_call_is_noted(tmp_path: Path) -> None:
    name = str(uuid.uuid4())
    store = RecordingStore(MemoryStore(name))
    store.put("a", b"12345")
    store.forget()

    store.head("a")
    store.get("a", length=2)
    store.open("a", offset=1).close()
    list(store.list("p"))
    with pytest.raises(NotFoundError):
        store.get("none")
    assert store.writes == ()

    store.put("b", b"1")
    with store.writer("c") as writer:
        writer.write(b"123")
        writer.commit()
    store.writer("d").abort()
    (tmp_path / "f").write_bytes(b"12")
    store.upload("e", tmp_path / "f")
    store.delete("e")
    assert store.calls == (
        RecordedCall("head", "a"),
        RecordedCall("get", "a", 2),
        RecordedCall("open", "a", 4),
        RecordedCall("list", "p"),
        RecordedCall("get", "none"),
        RecordedCall("put", "b", 1),
        RecordedCall("writer", "c"),
        RecordedCall("commit", "c", 3),
        RecordedCall("writer", "d"),
        RecordedCall("upload", "e", 2),
        RecordedCall("delete", "e"),
    )
    assert store.writes == store.calls[5:]
    assert store.count("get") == 2
    assert store.moved_bytes("get") == 2
    forget(name)
    assert list(MemoryStore(name).list()) == []


def test_an_encrypted_store_has_one_etag_for_writing_and_reading(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12")
    inner = MemoryStore(uuid.uuid4().hex)
    store = EncryptedStore(inner)

    def told() -> set[str]:
        (listed,) = (info for page in store.list() for info in page)
        return {listed.etag, store.head("k").etag, store.open("k").info.etag}

    written: list[ObjectInfo] = [store.put("k", b"1")]
    assert told() == {written[0].etag} != {inner.head("k").etag}
    assert store.get("k", if_match=written[0].etag) == b"1"
    written.append(store.put("k", b"123", if_match=written[0].etag))
    assert told() == {written[1].etag}
    written.append(store.upload("k", tmp_path / "file"))
    assert told() == {written[2].etag}
    with store.writer("k") as writer:
        writer.write(b"1234")
        assert writer.commit().etag in told()
