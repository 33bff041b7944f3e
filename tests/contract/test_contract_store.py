"""The contract of larder/store/base.py, on every store."""

import hashlib
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest
from store_place import S3_SERVERS, SERVERS, eight_at_once

from larder.errors import NotFoundError, PreconditionError
from tests.support.errors import error_of, larder_error
from tests.support.stores import keys_of

KEYS = {
    "key of a word": "word",
    "key with spaces": "a b  c",
    "key with umlauts": "Übung/größe.txt",
    "key with a combining accent": "cafe\u0301",
    "key beyond the 16 bits": "\U0001f642/\U00020000",
    "key %20": "%20/a%2Fb/100%",
    "key ?a=b#c": "?a=b#c&d",
    "key +": "a+b=c",
    "key of punctuation": "!\"$&'()*,-.:;<=>@[]^_`{|}~",
    "key with a backslash": "a\\b",
    "key with dots": ".hidden/..x/y..",
    "key with a newline": "line\nline",
    "key with a control character": "a\x01b\x7f",
    "key with C1 and separators": "a\x85b\u2028c\u00a0",
    "key /lead": "/lead",
    "key trail/": "trail/",
    "key a//b": "a//b",
    "key a/./b": "a/./b",
    "key a/../b": "a/../b",
    "key of 1,000 characters": "k" * 900 + "/" + "l" * 99,
    "key of many segments": "/".join("s" * 9 for _ in range(90)),
}


def code_of(call: Callable[[], object]) -> str:
    error = error_of(call)
    assert "<" not in str(error)
    return error.code


@pytest.mark.parametrize("name", KEYS)
def test_a_key_is_returned_unchanged(place, store, name):
    key = KEYS[name]
    data = key.encode()
    with place.promise(name):
        put = store.put(key, data)
        head = store.head(key)
        assert keys_of(store) == [key]
        assert put.key == head.key == key
        assert put.size_bytes == head.size_bytes == len(data)
        assert put.etag == head.etag != ""
        assert store.get(key) == data
        store.delete(key)
        with pytest.raises(NotFoundError):
            store.get(key)


@pytest.mark.parametrize("key", ["", "k" * 1025, "\ud800"])
def test_no_store_accepts_such_a_key(store, key):
    assert code_of(lambda: store.put(key, b"")) == "object.bad_key"
    assert code_of(lambda: store.get(key)) == "object.bad_key"


def test_a_key_may_begin_with_another(place, store):
    with place.promise("keys pf and pf/child"):
        store.put("pf", b"1")
        store.put("pf/child", b"22")
        assert keys_of(store) == ["pf", "pf/child"]
        assert store.get("pf") == b"1"


def test_keys_are_listed_in_order_of_their_bytes(store):
    keys = ["a-b", "a.c", "a/b", "a/b-c", "a/b.d/e", "a/c/d", "a0", "B", "é", "z", "🙂", "ﬀ"]
    for key in random.Random(7).sample(keys, len(keys)):
        store.put(key, key.encode())
    assert keys_of(store) == sorted(keys, key=str.encode)


def test_a_prefix_is_a_string_and_not_a_folder(store):
    for key in ("ab/1", "ab/2", "abc", "b", "ab-1"):
        store.put(key, b"x")
    assert keys_of(store, "ab") == ["ab-1", "ab/1", "ab/2", "abc"]
    assert keys_of(store, "ab/") == ["ab/1", "ab/2"]
    assert keys_of(store, "ab/1") == ["ab/1"]
    assert keys_of(store, "none") == []


def test_a_listing_starts_after_any_text(store):
    for key in ("a/1", "a/2", "a/3", "b", "c/d/e"):
        store.put(key, b"x")
    assert keys_of(store, start_after="a/2") == ["a/3", "b", "c/d/e"]
    assert keys_of(store, start_after="a/25") == ["a/3", "b", "c/d/e"]
    assert keys_of(store, start_after="c/d") == ["c/d/e"]
    assert keys_of(store, "a/", start_after="a/2") == ["a/3"]
    assert keys_of(store, "a/", start_after="b") == []
    assert keys_of(store, "b", start_after="a") == ["b"]


@pytest.mark.push
def test_a_listing_goes_past_a_page(place, store):
    keys = [f"{n % 7}/{n:05}" for n in range(1003)]
    place.before_threads(store, *keys[:7])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put(key, b"x"), keys))
    pages = list(store.list())
    with place.promise("pages of 1,000 keys"):
        assert all(0 < len(page) <= 1000 for page in pages)
        assert len(pages) > 1
    assert all(pages)
    assert [info.key for page in pages for info in page] == sorted(keys)
    assert keys_of(store, start_after=sorted(keys)[1000]) == sorted(keys)[1001:]


def test_a_store_sees_its_prefix_only(place, store):
    store.put("in/a", b"1")
    store.put("in-side", b"2")
    inner = place.open(store.url + "in")
    with_slash = place.open(store.url + "in/")
    assert inner.url == with_slash.url == store.url + "in/"
    assert keys_of(inner) == keys_of(with_slash) == ["a"]
    assert inner.get("a") == b"1"


def test_an_object_is_described_alike_by_list_and_head(store):
    before_us = time.time_ns() // 1000
    store.put("a", b"abc")
    (info,) = next(store.list())
    assert info.etag == store.head("a").etag
    assert abs(info.modified_us - before_us) < 60_000_000
    if store.features.etag_is_md5:
        assert info.etag == hashlib.md5(b"abc").hexdigest()


def test_ranges(store):
    store.put("empty", b"")
    assert store.get("empty") == store.get("empty", offset=0, length=10) == b""
    store.put("r", b"0123456789")
    assert store.get("r", offset=3) == b"3456789"
    assert store.get("r", offset=3, length=4) == b"3456"
    assert store.get("r", length=1) == b"0"
    assert store.get("r", offset=8, length=100) == b"89"
    assert store.get("r", offset=10) == b""
    assert store.get("r", offset=5, length=0) == b""
    assert code_of(lambda: store.get("r", offset=11)) == "object.truncated"
    assert code_of(lambda: store.get("r", offset=11, length=0)) == "object.truncated"
    with store.open("r", offset=2, length=3) as reader:
        assert reader.info.size_bytes == 10
        assert b"".join(reader) == b"234"


def test_a_large_object_comes_in_pieces(store):
    data = random.Random(1).randbytes(9_000_001)
    store.put("large", data)
    with store.open("large") as reader:
        pieces = [bytes(piece) for piece in reader]
    assert len(pieces) > 1
    assert b"".join(pieces) == data
    reader = store.open("large")
    next(iter(reader))
    reader.close()  # early, and twice
    reader.close()


def test_what_is_not_there(store):
    store.put("there", b"1")
    for call in (store.head, store.get, store.open):
        with larder_error("object.missing") as caught:
            call("not/there")
        assert "not/there" in caught.value.where


def test_reading_only_what_was_listed(store):
    store.put("k", b"first")
    (listed_info,) = next(store.list())
    assert store.get("k", if_match=listed_info.etag) == b"first"
    assert store.get("k", offset=2, length=2, if_match=listed_info.etag) == b"rs"
    store.put("k", b"other")
    assert code_of(lambda: store.get("k", if_match=listed_info.etag)) == "object.changed"
    assert code_of(lambda: store.get("k", length=0, if_match=listed_info.etag)) == "object.changed"


def test_several_are_read_as_each_of_them(store):
    contents = {"a": b"", "b/c": b"1", "b/d e": bytes(300_000), "\u00e9": b"23"}
    for key, data in contents.items():
        store.put(key, data)
    listed_objects = [
        (info.key, info.size_bytes, info.etag) for page in store.list() for info in page
    ]
    assert dict(zip(contents, store.get_each(listed_objects), strict=True)) == contents
    unsure = [
        (key, wrong, sure)
        for key, _, etag in listed_objects
        for wrong in (0, 1, 400_000)
        for sure in ("", etag)
    ]
    assert list(store.get_each(unsure)) == [data for data in contents.values() for _ in range(6)]
    assert list(store.get_each([])) == []
    store.put("b/c", b"2")
    assert code_of(lambda: list(store.get_each(listed_objects))) == "object.changed"
    missing = [("a", 0, ""), ("not/there", 1, "")]
    assert code_of(lambda: list(store.get_each(missing))) == "object.missing"


def test_any_buffer_can_be_put_and_overwrites(store):
    etags = set()
    for kind, data in ((bytes, b"one"), (bytearray, b"two"), (memoryview, b"3")):
        info = store.put("k", kind(data))
        etags.add(info.etag)
        assert info.size_bytes == len(data)
        assert store.get("k") == data
    assert len(etags) == 3


def test_put_if_absent(place, store):
    with place.promise("put if absent"):
        store.put("k", b"first", if_absent=True)
        with larder_error("object.exists"):
            store.put("k", b"second", if_absent=True)
        assert store.get("k") == b"first"


def test_one_of_eight_wins(place, store):
    with place.promise("put if absent, eight at once"):
        for attempt in range(5):
            write = partial(store.put, f"race-{attempt}", if_absent=True)
            wins = eight_at_once(write, PreconditionError)
            assert len(wins) == 1
            assert store.get(f"race-{attempt}") == wins[0]


def test_put_if_match(place, store):
    with place.promise("put if match"):
        first = store.put("k", b"one")
        second = store.put("k", b"two", if_match=first.etag)
        assert store.get("k") == b"two"
        for etag in (first.etag, "0" * 32):
            stale = partial(store.put, "k", b"three", if_match=etag)
            assert code_of(stale) == "object.changed"
        assert code_of(lambda: store.put("none", b"1", if_match=second.etag)) == "object.changed"
        assert keys_of(store) == ["k"]
        assert store.get("k") == b"two"


@pytest.mark.parametrize("size_bytes", [0, 1, 20 << 20])
def test_a_stream_is_written(store, size_bytes):
    data = random.Random(size_bytes).randbytes(size_bytes)
    with store.writer("s/t") as writer:
        piece = bytearray(3_000_000)
        for start in range(0, size_bytes, len(piece)):
            part = data[start : start + len(piece)]
            piece[: len(part)] = part
            writer.write(memoryview(piece)[: len(part)])  # the buffer is used again
        assert keys_of(store) == []
        info = writer.commit()
        writer.abort()
    assert info.size_bytes == store.head("s/t").size_bytes == size_bytes
    assert store.get("s/t") == data


@pytest.mark.parametrize("size_bytes", [0, 1, 20 << 20])
def test_an_aborted_stream_leaves_nothing(store, size_bytes):
    store.put("other", b"1")
    with store.writer("s") as writer:
        writer.write(bytes(size_bytes))
    with suppress(ZeroDivisionError), store.writer("s") as writer:
        writer.write(bytes(size_bytes))
        raise ZeroDivisionError
    writer.abort()
    assert keys_of(store) == ["other"]


@pytest.mark.parametrize("size_bytes", [0, 5, 17 << 20])
def test_a_file_is_uploaded(store, tmp_path, size_bytes):
    data = random.Random(size_bytes).randbytes(size_bytes)
    path = tmp_path / "file"
    path.write_bytes(data)
    assert store.upload("up/load", path).size_bytes == size_bytes
    assert store.get("up/load") == data


def test_a_missing_file_is_the_users_error(store, tmp_path):
    assert code_of(lambda: store.upload("k", tmp_path / "none")) == "config.path"


def test_deleting_twice_is_fine(store):
    store.put("a/b/c", b"1")
    store.delete("a/b/c")
    store.delete("a/b/c")
    store.delete("never/there")
    store.put("a", b"2")
    assert keys_of(store) == ["a"]


def test_delete_if_match(place, store):
    store.delete("none", if_match="0" * 32)
    with place.promise("delete if match"):
        before = store.put("k", b"one").etag
        after = store.put("k", b"two").etag
        assert code_of(partial(store.delete, "k", if_match=before)) == "object.changed"
        assert store.get("k") == b"two"
        store.delete("k", if_match=after)
        assert keys_of(store) == []


# A memory store is made when it is named.
@pytest.mark.parametrize("place", ["file", *SERVERS], indirect=True)
def test_the_store_is_missing(place):
    url = f"{place.scheme}://no-such-bucket-here/x" if place.server else place.url + "/none"
    store = place.open(url)
    assert code_of(lambda: keys_of(store)) == "store.missing"
    if place.server:
        with place.promise("missing bucket, when reading"):
            assert code_of(lambda: store.get("k")) == "store.missing"
        assert code_of(lambda: store.put("k", b"")) == "store.missing"
        assert code_of(lambda: store.writer("k").commit()) == "store.missing"


@pytest.mark.parametrize("place", S3_SERVERS, indirect=True)
def test_a_wrong_secret(place, store, monkeypatch):
    store.put("k", b"1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-right-secret")
    wrong = place.open()
    calls: list[Callable[[], object]] = [
        lambda: keys_of(wrong),
        lambda: wrong.head("k"),
        lambda: wrong.get("k"),
        lambda: wrong.put("k", b"2"),
        lambda: wrong.put("a/../b", b"2"),
        lambda: wrong.delete("k"),
        lambda: wrong.writer("k").commit(),
    ]
    with place.promise("wrong secret"):
        for call in calls:
            with larder_error("store.denied") as caught:
                call()
            assert "not-the-right" not in str(caught.value)
        assert store.get("k") == b"1"


def test_many_threads_use_one_store(place, store):
    place.before_threads(store, "t/0")

    def work(n: int) -> bool:
        data = f"{n}".encode() * 1000
        store.put(f"t/{n}", data)
        return store.get(f"t/{n}") == data and store.head(f"t/{n}").size_bytes == len(data)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(100)))
    assert len(keys_of(store)) == 100
