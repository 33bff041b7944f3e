"""What every store keeps when an object is copied: its bytes, content type and metadata."""

import random
from contextlib import suppress
from functools import partial

import google_crc32c
import pytest
from required import at_push
from store_place import eight_at_once

from larder.errors import LarderError, PreconditionError
from larder.store import ObjectInfo, Store, base
from larder.store.base import Features
from tests.support.stores import keys_of

METADATA = {"camera": "left", "note-2": "a b=c;d, %20 \"quoted\" 'x'"}
HEADERS = {
    "cache-control": "no-store",
    "content-disposition": 'attachment; filename="x.gz"',
    "content-encoding": "gzip",
    "content-language": "de",
}
LIKE = ObjectInfo(
    "other", 0, "", 0, content_type="image/x-test", metadata=METADATA, headers=HEADERS
)
LARGE_BYTES = 33_000_001
"""More than two upload parts or chunks of any store."""


def put(store: Store, key: str, data: bytes, like: ObjectInfo = LIKE) -> ObjectInfo:
    return store.put(key, data, like=like)


def stream(store: Store, key: str, data: bytes, like: ObjectInfo = LIKE) -> ObjectInfo:
    with store.writer(key, like=like) as writer:
        for start in range(0, len(data), 5_000_011):
            writer.write(data[start : start + 5_000_011])
        return writer.commit()


def kept(info: ObjectInfo) -> tuple[object, object]:
    return info.content_type, info.metadata


def crc32c(data: bytes) -> str:
    return f"crc32c:{google_crc32c.value(data):08x}"


@pytest.mark.parametrize("size_bytes", [0, 5, *at_push(LARGE_BYTES)])
@pytest.mark.parametrize("write", [put, stream])
def test_content_type_and_metadata_are_kept(place, store, write, size_bytes):
    data = random.Random(size_bytes).randbytes(size_bytes)
    written = write(store, "typed", data)
    assert (written.key, written.size_bytes) == ("typed", size_bytes)
    with store.open("typed") as reader:
        assert b"".join(reader) == data
    assert reader.info.etag == written.etag
    with place.promise("content type and metadata"):
        assert kept(reader.info) == ("image/x-test", METADATA)
    with place.promise("headers"):
        assert reader.info.headers == HEADERS
    again = store.put("again", b"1", like=reader.info)
    assert again.size_bytes == 1
    with store.open("again") as copy:
        assert kept(copy.info) == kept(reader.info)
        assert copy.info.headers == reader.info.headers


ODD = {"my key": "1", "a:b": "2", "höhe": "3", "x\r\nhost": "4", "empty": "", "ü": "漢 é"}


@pytest.mark.parametrize("write", [put, stream])
def test_what_no_header_can_have_is_kept_or_left_out(place, store, write):
    for content_type in ("text/plain; charset=utf-8", " spaced/type ", "no type", "ü/x", "a\r\nb"):
        with place.promise("odd metadata"):
            odd = ObjectInfo("o", 0, "", 0, content_type=content_type, metadata=ODD | METADATA)
            assert write(store, "odd", b"1", odd).size_bytes == 1
            with store.open("odd") as reader:
                assert b"".join(reader) == b"1"
            found = reader.info.metadata or {}
            assert (ODD | METADATA).items() >= (found.items() - {("mtime", found.get("mtime"))})
            if "file" not in place.kind:
                assert METADATA.items() <= found.items()


def test_without_another_there_is_no_metadata(store):
    store.put("plain", b"1")
    with store.open("plain") as reader:
        assert not reader.info.metadata


@pytest.mark.parametrize("size_bytes", [5, *at_push(LARGE_BYTES)])
def test_a_checksum_is_that_of_the_content(place, store, size_bytes):
    data = random.Random(3).randbytes(size_bytes)
    for written in (store.put("put", data), store.head("put"), *next(store.list())):
        assert written.checksum in (None, crc32c(data))
    store.delete("put")
    written = stream(store, "streamed", data)
    with place.promise(f"checksum of a {'large' if size_bytes > 5 else 'small'} stream"):
        for described in (written, store.head("streamed"), *next(store.list())):
            assert described.checksum in (None, crc32c(data))


@pytest.mark.parametrize("size_bytes", [0, 5, *at_push(LARGE_BYTES)])
def test_a_copy_on_the_server_is_whole_or_not_made(place, store, size_bytes):
    data = random.Random(size_bytes).randbytes(size_bytes)
    stream(store, "in/a b+ü", data)
    (info,) = next(store.list())
    target = place.open(f"{store.url}copies")
    target.put("here", b"")
    copy = target.copy_from(store, info, "x/ü b")
    if copy is None:
        assert keys_of(target) == ["here"]
        return
    assert (copy.key, copy.size_bytes) == ("x/ü b", size_bytes)
    with target.open("x/ü b", if_match=copy.etag) as reader:
        assert b"".join(reader) == data
    with store.open("in/a b+ü") as source, place.promise("metadata of a copy"):
        assert kept(reader.info) == kept(source.info)
        assert reader.info.headers == source.info.headers


def test_only_the_state_that_was_listed_is_copied(place, store):
    store.put("a", b"first")
    (info,) = next(store.list())
    store.put("a", b"other")
    listed_in_a_manifest = ObjectInfo("a", info.size_bytes, info.etag, info.modified_us)
    target = place.open(f"{store.url}copies")
    target.put("here", b"")
    for wanted in (listed_in_a_manifest, info):
        with place.promise("copy of a listed state" if wanted is info else "copy by etag"):
            with suppress(PreconditionError):
                assert target.copy_from(store, wanted, "a") is None
            assert keys_of(target) == ["here"]
        target.delete("a")


def test_nothing_is_copied_from_another_provider(store):
    other = "memory" if not store.url.startswith("memory") else "file"
    source = Elsewhere(other)
    info = store.put("a", b"1")
    assert store.copy_from(source, info, "b") is None  # type: ignore[arg-type]
    assert keys_of(store) == ["a"]


def test_a_store_says_whether_it_has_uploads(store):
    upload = store.begin_upload("a")
    assert store.features.uploads == (upload is not None)
    if upload is not None:
        upload.abort()


class Elsewhere:
    """A source that must not be asked for anything but where it is."""

    def __init__(self, provider: str) -> None:
        self.url = f"{provider}://elsewhere/"
        self.features = Features(True, place=base.BucketPrefix(provider, "", "elsewhere", ""))


def test_one_of_eight_replaces(place, store):
    races = []
    for attempt in range(5):
        first = store.put(f"race-{attempt}", b"first")
        write = partial(store.put, first.key, if_match=first.etag)
        races.append(eight_at_once(write, LarderError))
        with place.promise("content after eight at once"):
            assert store.get(first.key) in races[-1]
    with place.promise("replacing, eight at once"):
        assert [len(wins) for wins in races] == [1] * 5
