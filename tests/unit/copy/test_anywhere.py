"""Objects are read from the first place that has them, and whatever their etags where told so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from larder.copy.mirror_reader import FirstOf, Unconditional
from larder.errors import NotFoundError, ObjectError, StoreError
from larder.store.memory import MemoryStore, forget
from tests.support.stores import Fail, FaultyStore

NAMES = ("anywhere-source", "anywhere-mirror")


@pytest.fixture
def stores() -> Iterator[tuple[MemoryStore, MemoryStore]]:
    yield MemoryStore(NAMES[0]), MemoryStore(NAMES[1])
    for name in NAMES:
        forget(name)


def test_the_planned_state_comes_first(stores: tuple[MemoryStore, MemoryStore]) -> None:
    source, mirror = stores
    etag = source.put("a", b"planned").etag
    mirror.put("a", b"copy")
    places = FirstOf([source, Unconditional(mirror), Unconditional(source)])
    assert places.get("a", if_match=etag) == b"planned"
    source.put("a", b"changed")
    assert places.get("a", if_match=etag) == b"copy"
    assert places.get_each([("a", 4, etag)]) == [b"copy"]
    mirror.delete("a")
    with places.open("a", if_match=etag) as reader:
        assert b"".join(map(bytes, reader)) == b"changed"
    assert places.head("a").size_bytes == 7
    assert not places.features.etag_is_md5


def test_what_is_nowhere_is_the_error_of_the_first_place(
    stores: tuple[MemoryStore, MemoryStore],
) -> None:
    with pytest.raises(NotFoundError, match=NAMES[0]):
        FirstOf(stores).get("b")
    refusing = FaultyStore(stores[0])
    refusing.add("get", Fail(StoreError("store.denied", "no")), times=None)
    with pytest.raises(ObjectError, match="no") as caught:
        FirstOf([refusing, stores[1]]).get("b")
    assert caught.value.code == "object.unreadable", "it is of one object, and ends no repair"
