"""The mirror read as the source: returns what was copied, or raises an error."""

import tracemalloc
import uuid
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import pyarrow as pa
import pytest

from larder.budgets import ByteBudget
from larder.copy.allowance import CopyLimits
from larder.copy.mirror_reader import Copies, FirstOf, KnownCopy, Mirror, Unconditional
from larder.copy.object import copy_object
from larder.copy.proof import CopiedObject, ObjectCopy
from larder.errors import NotFoundError, ObjectError, StoreError
from larder.manifest.schemas import OBJECTS
from larder.store import open_store
from larder.store.base import Store
from tests.support.errors import code_of
from tests.support.memory import MemoryStore, forget
from tests.support.stores import Fail, FaultyStore

DATA = bytes(range(256)) * 5


@pytest.fixture
def store() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}/")


def rows_of(copies: list[CopiedObject]) -> pa.RecordBatch:
    columns = zip(*copies, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, OBJECTS, strict=True)]
    return pa.record_batch(arrays, schema=OBJECTS)


@pytest.fixture
def mirror(store: Store) -> Mirror:
    """Of one object ``k`` with a checksum, and one ``e`` that is known by its etag alone."""
    source = open_store(f"memory://{uuid.uuid4().hex}/")
    etag_only, summed, other = (
        copy_object(
            ObjectCopy(source, source.put(key, DATA), store, key), CopyLimits(1, ByteBudget(2**20))
        )
        for key in ("e", "k", "other")
    )
    rows = [
        etag_only._replace(checksum=None),
        summed._replace(etag="as listed"),
        other._replace(mirror_etag=None),
    ]
    found = Copies([rows_of(rows[:2]), rows_of(rows[2:])])
    assert [key for key in ("e", "k", "other") if found.get(key)] == ["e", "k"]
    return Mirror(store, found)


def test_copies_have_the_etags_of_their_sources(mirror):
    assert mirror.head("k").etag == "as listed"
    assert mirror.get("k", if_match="as listed") == DATA
    assert mirror.get("k", offset=3, length=4, if_match="as listed") == DATA[3:7]
    with mirror.open("k", if_match="as listed") as reader:
        assert b"".join(reader) == DATA
    assert mirror.get("e") == DATA


def test_another_state_of_the_source_is_a_change_and_what_was_not_copied_is_missing(mirror):
    for call in (mirror.get, mirror.open):
        assert code_of(call, "k", if_match="older") == "object.changed"
    for call in (mirror.head, mirror.get, mirror.open):
        assert code_of(call, "other") == "object.missing"


def test_a_listing_shows_the_copies_alone(mirror, store):
    store.put("other", b"of another run")
    listed = [info for page in mirror.list() for info in page]
    assert listed == [mirror.head("e"), mirror.head("k")]
    assert [info.key for page in mirror.list("k") for info in page] == ["k"]
    assert list(mirror.list(start_after="k")) == []


def test_several_copies_are_read_and_checked(mirror, store):
    objects = [("k", len(DATA), "as listed"), ("e", len(DATA), mirror.head("e").etag)]
    assert list(mirror.get_each(objects)) == [DATA, DATA]
    store.put("k", DATA)
    assert mirror.get("k") == DATA
    assert list(mirror.get_each(objects)) == [DATA, DATA]
    older = [("k", len(DATA), "older")]
    assert code_of(lambda: list(mirror.get_each(older))) == "object.changed"
    store.put("k", DATA[::-1])
    assert code_of(lambda: list(mirror.get_each(objects))) == "object.mismatch"
    store.put("k", DATA)
    store.delete("e")
    assert code_of(lambda: list(mirror.get_each(objects))) == "object.missing"


def test_different_bytes_are_detected(mirror, store):
    store.put("k", DATA[::-1])
    store.put("e", DATA[::-1])
    assert code_of(lambda: mirror.get("k")) == "object.mismatch"
    assert code_of(lambda: b"".join(mirror.open("k"))) == "object.mismatch"
    assert code_of(lambda: mirror.get("e")) == "object.changed"
    assert code_of(lambda: mirror.open("e")) == "object.changed"


def test_it_has_the_features_of_its_store_except_the_etags(mirror, store):
    assert mirror.url == store.url
    assert mirror.features == replace(store.features, etag_is_md5=False)


ROWS = pa.schema([(name, pa.string()) for name in ("key", "etag", "mirror_etag", "checksum")])


def rows(*copies: tuple[str, str, str | None, str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [dict(zip(ROWS.names, copy, strict=True)) for copy in copies], schema=ROWS
    )


def test_the_last_copy_of_an_object_counts():
    some = rows(("a", "1", "m1", None), ("é\0\n", "2", "m2", "c2"), ("unknown", "3", None, None))
    more = rows(("a", "9", "m9", "c9"), ("b", "4", "m4", "c4"))
    copies = Copies([some, more, rows()])
    assert copies.get("a") == KnownCopy("9", "m9", "c9")
    assert copies.get("é\0\n") == KnownCopy("2", "m2", "c2")
    assert copies.get("b") == KnownCopy("4", "m4", "c4")
    assert copies.get("unknown") is copies.get("") is None


def test_copies_in_memory_take_little_of_it():
    """Their texts, their places, and an index of 16 bytes."""
    texts = [(f"folder/{n:030}", f"{n:030}", f"{n:030}", f"crc32c:{n:08x}") for n in range(20_000)]
    batches = [rows(*texts[first : first + 2_000]) for first in range(0, 20_000, 2_000)]
    text_bytes = sum(map(len, chain.from_iterable(texts)))
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    copies = Copies(batches)
    taken = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes() - before
    tracemalloc.stop()
    assert taken < text_bytes + 50 * len(texts)
    assert copies.get(texts[-1][0]) == texts[-1][1:]


NAMES = ("anywhere-source", "anywhere-mirror")


@pytest.fixture
def stores() -> Iterator[tuple[MemoryStore, MemoryStore]]:
    yield MemoryStore(NAMES[0]), MemoryStore(NAMES[1])
    for name in NAMES:
        forget(name)


def test_the_planned_state_comes_first(stores):
    source, mirror = stores
    etag = source.put("a", b"planned").etag
    mirror.put("a", b"copy")
    places = FirstOf([source, Unconditional(mirror), Unconditional(source)])
    assert places.get("a", if_match=etag) == b"planned"
    source.put("a", b"changed")
    assert places.get("a", if_match=etag) == b"copy"
    assert list(places.get_each([("a", 4, etag)])) == [b"copy"]
    mirror.delete("a")
    with places.open("a", if_match=etag) as reader:
        assert b"".join(map(bytes, reader)) == b"changed"
    assert places.head("a").size_bytes == 7
    assert not places.features.etag_is_md5


def test_what_is_nowhere_is_the_error_of_the_first_place(stores):
    with pytest.raises(NotFoundError, match=NAMES[0]):
        FirstOf(stores).get("b")
    refusing = FaultyStore(stores[0])
    refusing.add("get", Fail(StoreError("store.denied", "no")), times=None)
    with pytest.raises(ObjectError, match="no") as caught:
        FirstOf([refusing, stores[1]]).get("b")
    assert caught.value.code == "object.unreadable", "it is of one object, and ends no repair"
