"""What the GCS store asks of a server like Google's, and makes of its answers."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Any

import google_crc32c
import pytest

from larder.errors import (
    FatalError,
    LarderError,
    ObjectError,
    RetryableError,
)
from larder.store import Access, ObjectInfo, RetryPolicy, Store, buckets, open_store
from larder.store.gcs import GcsStore
from larder.store.interrupt import Interrupt
from tests.support import errors
from tests.support.fake_gcs import MODIFIED, FakeGcs, crc32c, gcs_json, gcs_refusal
from tests.support.http_server import Ask, Say
from tests.support.stores import keys_of

CHUNK = 1 << 20
DATA = random.Random(5).randbytes(CHUNK * 2 + 1000)
KEY = "projects/p/locations/l/keyRings/r/cryptoKeys/k"


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(buckets, "PART_BYTES", CHUNK)


def opened(gcs: FakeGcs, prefix: str = "p", **access: Any) -> Store:
    return open_store(
        f"gs://bucket/{prefix}", access=Access(endpoint=gcs.endpoint, **access), retry=None
    )


def patient(gcs: FakeGcs, slept: list[float] | None = None, tries: int = 4) -> GcsStore:
    """A store that repeats by itself without waiting; the pauses are noted."""
    noted = [] if slept is None else slept
    policy = RetryPolicy(attempts=tries, first_delay_seconds=0, sleep=noted.append)
    store = GcsStore("bucket", "p", Access(endpoint=gcs.endpoint))
    store._bucket._policy = policy
    return store


def error_of(call: Callable[[], object]) -> LarderError:
    error = errors.error_of(call)
    assert "secret" not in str(error)
    return error


def stream(store: Store, data: bytes, key: str = "k", **more: Any) -> ObjectInfo:
    with store.writer(key, **more) as writer:
        for start in range(0, len(data), 5_000_011):
            writer.write(data[start : start + 5_000_011])
        return writer.commit()


def media(ask: Ask) -> bool:
    """Whether it asks for an object's bytes."""
    return ask.query.get("alt") == "media"


def once(*says: Say, when: Callable[[Ask], bool]) -> Callable[[Ask], Say | None]:
    """Answer the first requests of a kind with these."""
    left = list(says)

    def fault(ask: Ask) -> Say | None:
        return left.pop(0) if left and when(ask) else None

    return fault


def test_the_same_bytes_in_another_generation_are_the_same(gcs):
    store = opened(gcs)
    first = store.put("k", b"1")
    gcs.add("p/k", b"1")
    assert store.head("k").generation != first.generation
    assert store.put("k", b"2", if_match=first.etag).size_bytes == 1


def test_an_object_that_was_composed_has_the_checksum_as_its_etag(gcs):
    resource = gcs.add("p/k", b"abc")
    del resource["md5Hash"]
    store = opened(gcs)
    etag = f"crc32c:{google_crc32c.value(b'abc'):08x}"
    with store.open("k") as reader:
        assert store.head("k").etag == reader.info.etag == next(store.list())[0].etag == etag
    assert store.get("k", if_match=etag, offset=1) == b"bc"
    assert store.put("k", b"2", if_match=etag).etag == hashlib.md5(b"2").hexdigest()


def test_a_range_is_one_request_and_a_whole_object_two_at_once(gcs):
    gcs.add("p/k", b"0123456789", metadata={"Camera": "left"}, storageClass="NEARLINE")
    store = opened(gcs)
    with store.open("k", offset=2, length=3, if_match=store.head("k").etag) as reader:
        assert b"".join(reader) == b"234"
    assert (reader.info.size_bytes, reader.info.storage_class) == (10, "NEARLINE")
    assert reader.info.metadata is None
    assert len(gcs.asked) == 2
    assert store.get("k", offset=9) == b"9"
    assert store.get("k") == b"0123456789"
    assert len(gcs.asked) == 4
    with store.open("k") as reader:
        assert b"".join(reader) == b"0123456789"
    assert reader.info == store.head("k")
    assert reader.info.metadata == {"camera": "left"}
    assert len(gcs.asked) == 7


@pytest.mark.parametrize("separator", [",", ", ", "\n"])
def test_hashes_come_in_one_header_or_several(gcs, separator):
    gcs.hash_separator = separator
    gcs.add("p/k", b"0123456789")
    with opened(gcs).open("k", length=2) as reader:
        assert reader.info.etag == hashlib.md5(b"0123456789").hexdigest()
    assert len(gcs.asked) == 1


@pytest.mark.parametrize("hash_headers", [True, False])
def test_what_was_written_while_it_was_opened(gcs, hash_headers):
    gcs.hash_headers = hash_headers
    listed = gcs.add("p/k", b"first")
    store = opened(gcs)
    etag = store.head("k").etag
    assert store.get("k", offset=3, length=2, if_match=etag) == b"st"

    def meanwhile(ask: Ask) -> None:
        if media(ask) and gcs.objects["bucket", "p/k"] is listed:
            gcs.add("p/k", b"other")

    gcs.fault = meanwhile
    assert error_of(lambda: store.get("k", if_match=etag)).code == "object.changed"
    with store.open("k") as reader:
        assert b"".join(reader) == b"other"
        assert reader.info.etag == hashlib.md5(b"other").hexdigest()


@pytest.mark.parametrize(
    "odd",
    [
        {"x-goog-hash": "crc32c=***"},
        {"x-goog-hash": "md5=CY9rzUYh03PK3k6DJie09g=="},
        {"Last-Modified": "yesterday"},
    ],
)
def test_headers_that_say_too_little_are_asked_about(gcs, odd):
    gcs.add("p/k", b"0123456789")
    store = opened(gcs)
    headers = {
        "x-goog-hash": f"crc32c={crc32c(b'0123456789')}",
        "Last-Modified": MODIFIED,
        "Content-Range": "bytes 3-4/10",
    }
    say = Say(206, b"34", headers | odd)
    gcs.fault = lambda ask: say if media(ask) else None
    with store.open("k", offset=3, length=2) as reader:
        assert b"".join(reader) == b"34"
    assert reader.info == store.head("k")


def test_an_answer_of_the_wrong_length_is_refused(gcs):
    gcs.add("p/k", b"0123456789")
    short = Say(200, b"01234", {"x-goog-generation": "1001", "x-goog-stored-content-length": "10"})
    gcs.fault = lambda ask: short if media(ask) else None
    store = opened(gcs)
    assert error_of(lambda: store.get("k")).code == "object.truncated"
    with store.open("k") as reader:
        assert error_of(lambda: b"".join(reader)).code == "object.truncated"


def test_what_was_listed_is_not_asked_for_again(gcs):
    assert keys_of(opened(gcs), start_after="a") == []
    assert gcs.asked[-1].query["startOffset"] == "p/a"


@pytest.mark.parametrize(
    "body",
    [b"<html>", b"[]", b'{"items": 3}', b'{"items": [3]}', b'{"items": [{"name": "p/k"}]}'],
)
def test_another_answer_than_a_listing_is_refused(gcs, body):
    gcs.fault = lambda _: Say(200, body)
    assert error_of(lambda: list(opened(gcs).list())).code == "store.refused"
    assert error_of(lambda: opened(gcs).head("k")).code == "store.refused"


def test_the_server_verifies_what_it_receives(gcs):
    store = opened(gcs)
    md5 = hashlib.md5(b"abc").hexdigest()
    info = store.put("k", b"abc", md5=md5)
    assert (info.etag, info.checksum) == (md5, f"crc32c:{google_crc32c.value(b'abc'):08x}")
    sent = gcs.asked[-1].body
    assert b'"crc32c": "' + crc32c(b"abc").encode() in sent
    error = error_of(lambda: store.put("k", b"abc", md5="0" * 32))
    assert isinstance(error, RetryableError)
    assert "other bytes" in error.message
    assert gcs.contents["bucket", "p/k"] == b"abc"


@pytest.mark.parametrize("size_bytes", [CHUNK, CHUNK + 1, 2 * CHUNK])
def test_a_stream_of_one_chunk_or_about_is_whole(gcs, size_bytes):
    data = DATA[:size_bytes]
    info = stream(opened(gcs), data)
    assert gcs.contents["bucket", "p/k"] == data
    assert info.checksum == f"crc32c:{google_crc32c.value(data):08x}"
    assert gcs.uploads == {}
    puts = len(gcs.lines("PUT"))
    assert puts == (0 if size_bytes <= CHUNK else -(-size_bytes // CHUNK))


@pytest.mark.parametrize("stopped", [False, True])
def test_an_upload_that_is_aborted_or_stopped_is_cancelled(gcs, stopped):
    """Nothing but the network was stopped any more, so it was never cancelled."""
    interrupt = Interrupt()
    with interrupt.active(), opened(gcs).writer("k") as writer:
        writer.write(DATA)
        assert len(gcs.uploads) == 1
        if stopped:
            interrupt.stop()
            with pytest.raises(FatalError, match="stopped"):
                writer.commit()
    assert gcs.uploads == gcs.objects == {}
    assert len(gcs.lines("DELETE")) == 1  # a chunk that was being sent may arrive later


def is_chunk(ask: Ask) -> bool:
    return ask.method == "PUT" and bool(ask.body)


@pytest.mark.parametrize(("kept", "which"), [(0, 0), (256 << 10, 1), (CHUNK, 0), (CHUNK, 2)])
def test_an_interrupted_upload_goes_on_where_the_server_says(gcs, kept, which):
    chunks: list[int] = []

    def interrupt(ask: Ask) -> Say | None:
        if not is_chunk(ask):
            return None
        chunks.append(len(ask.body))
        if len(chunks) != which + 1:
            return None
        (upload,) = gcs.uploads.values()
        upload["data"] += ask.body[:kept]
        return gcs_refusal(503, "backend error", "backendError")

    gcs.fault = interrupt
    info = stream(patient(gcs), DATA)
    assert gcs.contents["bucket", "p/k"] == DATA
    assert info.size_bytes == len(DATA)
    status = [ask for ask in gcs.asked if ask.method == "PUT" and not ask.body]
    assert len(status) == 1
    resent = sum(chunks) - len(DATA)
    whole = len(DATA) % CHUNK if which == 2 else CHUNK
    assert resent == max(0, whole - kept), "only what the server lacked is sent again"


def test_an_upload_whose_last_answer_was_lost_is_done(gcs):
    state = {"lost": False}

    def lose(ask: Ask) -> Say | None:
        if is_chunk(ask) and not ask.headers["content-range"].endswith("*") and not state["lost"]:
            state["lost"] = True
            (upload,) = gcs.uploads.values()
            upload["data"] += ask.body
            return Say(200, b"{", cut=0)
        return None

    gcs.fault = lose
    assert stream(patient(gcs), DATA).size_bytes == len(DATA)
    assert gcs.contents["bucket", "p/k"] == DATA


@pytest.mark.parametrize("say", [gcs_refusal(503), Say(308)], ids=["fails", "takes nothing"])
def test_a_server_that_keeps_refusing_an_upload_is_given_up(gcs, say):
    gcs.fault = lambda ask: say if ask.method == "PUT" else None
    assert isinstance(error_of(lambda: stream(patient(gcs, tries=3), DATA)), RetryableError)
    assert gcs.uploads == {}, "and cancelled"


@pytest.mark.parametrize("status", [404, 410])
def test_an_upload_that_the_server_has_forgotten(gcs, status):
    gcs.fault = once(gcs_refusal(status), when=is_chunk)
    error = error_of(lambda: stream(patient(gcs), DATA))
    assert (type(error), error.code) == (ObjectError, "object.unreadable")


@pytest.mark.parametrize("deletion", ["done", "refused", "too late"])
def test_bytes_that_changed_on_the_way_are_deleted(gcs, deletion):
    def damage(ask: Ask) -> Say | None:
        if is_chunk(ask):
            ask.body = b"\0" + ask.body[1:]
        if ask.method == "DELETE" and deletion == "too late":
            gcs.add("p/k", b"of another run")
        refused = ask.method == "DELETE" and deletion == "refused"
        return gcs_refusal(403) if refused else None

    gcs.fault = damage
    error = error_of(lambda: stream(opened(gcs), DATA))
    assert error.code == "object.mismatch"
    assert (error.hint == "remove the object, then run again") == (deletion == "refused")
    if deletion == "done":
        assert gcs.objects == {}
    if deletion == "too late":
        assert gcs.contents["bucket", "p/k"] == b"of another run"


def test_a_copy_goes_on_after_a_failure(gcs):
    gcs.rewrite_calls = 3
    gcs.buckets.add("other")
    gcs.add("src/a b/ü", b"content", bucket="other")
    source = open_store("gs://other/src", endpoint=gcs.endpoint, retry=None)
    slept: list[float] = []
    busy = gcs_refusal(403, "slow", "userRateLimitExceeded", Retry_After="3")
    gcs.fault = once(busy, when=lambda ask: "rewriteToken" in ask.query)
    info = source.head("a b/ü")
    copy = patient(gcs, slept).copy_from(source, info, "x y")
    assert copy is not None
    assert copy.etag == info.etag
    assert gcs.contents["bucket", "p/x y"] == b"content"
    assert slept == [3.0]
    tokens = [ask.query.get("rewriteToken") for ask in gcs.asked[1:]]
    assert tokens == [None, "token-1", "token-1", "token-2"]


@pytest.mark.parametrize(
    "refusal",
    [
        gcs_refusal(403, "does not have storage.objects.get access", "forbidden"),
        gcs_refusal(
            400, "Bucket is requester pays bucket but no user project provided.", "required"
        ),
    ],
)
def test_what_must_not_be_copied_is_left_to_streaming(gcs, refusal):
    store = opened(gcs)
    info = store.put("a", b"first")
    gcs.fault = lambda _: refusal
    assert store.copy_from(store, info, "b") is None


def test_another_server_is_another_place(gcs):
    store = opened(gcs)
    info = store.put("a", b"first")
    google = open_store("gs://bucket/p", access=Access(anonymous=True))
    assert google.copy_from(store, info, "b") is None


def test_everything_is_encrypted_with_the_key(gcs):
    store = opened(gcs, kms_key=KEY)
    info = store.put("a", b"1")
    stream(store, DATA, "b")
    store.copy_from(store, info, "c")
    assert [gcs.objects["bucket", f"p/{key}"]["kmsKeyName"] for key in "abc"] == [KEY] * 3


def test_the_project_pays_for_every_request(gcs, tmp_path):
    gcs.payer_needed = True
    error = error_of(lambda: opened(gcs).get("a"))
    assert error.code == "store.denied"
    assert "requester_pays: true" in error.hint
    store = opened(gcs, requester_pays=True, project="team")
    info = store.put("a", b"1")
    stream(store, DATA, "b")
    assert store.get("a") == b"1"
    store.copy_from(store, info, "c")
    store.delete("a")
    assert [i.key for page in store.list() for i in page] == ["b", "c"]
    assert {ask.query.get("userProject") for ask in gcs.asked} == {None, "team"}
    assert [ask.query.get("userProject") for ask in gcs.asked].count(None) == 1


def test_somebody_has_to_pay(gcs):
    error = error_of(lambda: opened(gcs, requester_pays=True).get("a"))
    assert error.code == "config.invalid_value"


def test_no_token_is_sent_without_tls(gcs, monkeypatch, tmp_path):
    path = tmp_path / "credentials.json"
    path.write_text('{"type": "authorized_user", "client_id": "i", "client_secret": "secret"}')
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    opened(gcs).put("a", b"1")
    assert not any("authorization" in ask.headers for ask in gcs.asked)


def test_the_server_may_be_named_in_the_environment(gcs, monkeypatch):
    for name in (gcs.endpoint, gcs.endpoint.removeprefix("http://")):
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", name)
        store = open_store("gs://bucket/p", retry=None)
        store.put("a", b"1")
        assert store.features.place == opened(gcs).features.place
    assert len(gcs.asked) == 2
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://user:secret@host")
    assert error_of(lambda: open_store("gs://bucket/p")).code == "config.secret"


def test_without_credentials_it_says_what_to_do(monkeypatch):
    error = error_of(lambda: open_store("gs://bucket", retry=None).get("k"))
    assert error.code == "store.denied"
    assert "anonymous: true" in error.hint
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/none/secret.json")
    assert error_of(lambda: open_store("gs://bucket", retry=None).get("k")).code == "store.denied"


@pytest.mark.parametrize(
    ("say", "region"),
    [
        (gcs_json({"location": "US-CENTRAL1"}), "US-CENTRAL1"),
        *((gcs_refusal(status), "") for status in (401, 403, 404)),
    ],
    ids=["seen", "401", "403", "404"],
)
def test_the_region_is_the_location_of_the_bucket_if_it_may_be_seen(gcs, say, region):
    gcs.fault = lambda ask: say
    assert opened(gcs).region() == region
    assert gcs.lines() == ["GET /storage/v1/b/bucket"]
