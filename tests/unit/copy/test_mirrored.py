"""The mirror read as the source: returns what was copied, or raises an error."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from larder.copy.copy_limits import CopyLimits
from larder.copy.mirror_reader import Copies, Mirror
from larder.copy.object import CopiedObject, copy_object
from larder.errors import LarderError
from larder.limits import ByteBudget
from larder.manifest.schemas import OBJECTS
from larder.store import open_store
from larder.store.base import Store

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
        copy_object(source, source.put(key, DATA), store, key, CopyLimits(1, ByteBudget(2**20)))
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


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(LarderError) as caught:
        call()
    return caught.value.code


def test_copies_have_the_etags_of_their_sources(mirror: Mirror) -> None:
    assert mirror.head("k").etag == "as listed"
    assert mirror.get("k", if_match="as listed") == DATA
    assert mirror.get("k", offset=3, length=4, if_match="as listed") == DATA[3:7]
    with mirror.open("k", if_match="as listed") as reader:
        assert b"".join(reader) == DATA
    assert mirror.get("e") == DATA


def test_another_state_of_the_source_is_a_change(mirror: Mirror) -> None:
    assert code_of(lambda: mirror.get("k", if_match="older")) == "object.changed"
    assert code_of(lambda: mirror.open("k", if_match="older")) == "object.changed"


def test_objects_that_were_not_copied_are_missing(mirror: Mirror) -> None:
    for call in (mirror.head, mirror.get, mirror.open):
        assert code_of(lambda call=call: call("other")) == "object.missing"


def test_a_listing_shows_the_copies_alone(mirror: Mirror, store: Store) -> None:
    store.put("other", b"of another run")
    listed = [info for page in mirror.list() for info in page]
    assert listed == [mirror.head("e"), mirror.head("k")]
    assert [info.key for page in mirror.list("k") for info in page] == ["k"]
    assert list(mirror.list(start_after="k")) == []


def test_the_same_bytes_written_again_are_the_same_copy(mirror: Mirror, store: Store) -> None:
    store.put("k", DATA)
    assert mirror.get("k") == DATA


def test_several_copies_are_read_and_checked(mirror: Mirror, store: Store) -> None:
    objects = [("k", len(DATA), "as listed"), ("e", len(DATA), mirror.head("e").etag)]
    assert list(mirror.get_each(objects)) == [DATA, DATA]
    store.put("k", DATA)
    assert list(mirror.get_each(objects)) == [DATA, DATA]
    older = [("k", len(DATA), "older")]
    assert code_of(lambda: mirror.get_each(older)) == "object.changed"
    store.put("k", DATA[::-1])
    assert code_of(lambda: mirror.get_each(objects)) == "object.mismatch"
    store.put("k", DATA)
    store.delete("e")
    assert code_of(lambda: mirror.get_each(objects)) == "object.missing"


def test_different_bytes_are_detected(mirror: Mirror, store: Store) -> None:
    store.put("k", DATA[::-1])
    store.put("e", DATA[::-1])
    assert code_of(lambda: mirror.get("k")) == "object.mismatch"
    assert code_of(lambda: b"".join(mirror.open("k"))) == "object.mismatch"
    assert code_of(lambda: mirror.get("e")) == "object.changed"
    assert code_of(lambda: mirror.open("e")) == "object.changed"


def test_it_has_the_features_of_its_store_except_the_etags(mirror: Mirror, store: Store) -> None:
    assert mirror.url == store.url
    assert mirror.features == replace(store.features, etag_is_md5=False)
