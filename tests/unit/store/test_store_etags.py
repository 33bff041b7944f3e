"""Etags as proof of content, if they are an MD5 and if they are not."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from larder.config.urls import Access
from larder.errors import ObjectError
from larder.store import open_store
from larder.store.base import Store
from larder.store.etags import StreamCheck
from larder.store.s3 import S3Store
from tests.support.errors import larder_error
from tests.support.stores import EncryptedStore, FaultyStore, FlipBit, RecordingStore


def filled(count: int) -> Store:
    store = open_store(f"memory://{uuid.uuid4().hex}")
    for number in range(count):
        store.put(f"{number:02}", bytes([number]) * 100)
    return store


def encrypted(inner: Store) -> RecordingStore:
    return RecordingStore(EncryptedStore(inner))


def arrive(store: Store, key: str) -> bool:
    """Read an object like any reader; returns whether its etag proved it."""
    info = store.head(key)
    content_check = StreamCheck(store, key, info.etag, info.size_bytes)
    content_check.add(store.get(key, if_match=info.etag))
    return content_check.check()


def test_it_is_learned_once_by_many_threads():
    store = encrypted(filled(16))
    barrier = threading.Barrier(16)

    def run(number: int) -> bool:
        barrier.wait()
        return arrive(store, f"{number:02}")

    with ThreadPoolExecutor(16) as pool:
        assert not any(pool.map(run, range(16)))
    assert store.count("open") == 1
    again = RecordingStore(store.inner)  # as every batch opens a store of its own
    assert not arrive(again, "00")
    assert again.count("open") == 0


def test_a_damaged_transfer_teaches_nothing_and_is_found():
    inner = filled(3)
    faulty = FaultyStore(inner)
    assert arrive(faulty, "00")
    for key in ("01", "02"):
        faulty.add("get", FlipBit(), key=key)
        with larder_error("object.mismatch"):
            arrive(faulty, key)
        assert arrive(faulty, key)


def test_the_first_of_an_encrypted_store_is_found_if_it_is_damaged():
    faulty = FaultyStore(EncryptedStore(filled(2)))
    faulty.add("get", FlipBit())
    with pytest.raises(ObjectError):
        arrive(faulty, "00")
    store = RecordingStore(faulty)
    assert not arrive(store, "00")
    assert store.count("open") == 1, "the damaged one said nothing about etags"


def test_matching_etags_remain_proof_if_others_do_not_match():
    store = RecordingStore(EncryptedStore(filled(6), encrypted=lambda key: key in ("01", "03")))
    proved = [arrive(store, f"{number:02}") for number in range(6)]
    assert proved == [True, False, True, False, True, True]
    assert store.count("open") == 2


def test_one_mismatch_does_not_hide_a_damaged_transfer():
    faulty = FaultyStore(EncryptedStore(filled(4), encrypted=lambda key: key == "01"))
    assert arrive(faulty, "00")
    assert not arrive(faulty, "01"), "rotten on the server's disk, say"
    faulty.add("get", FlipBit(), key="02")
    with larder_error("object.mismatch"):
        arrive(faulty, "02")


def test_in_a_mixed_bucket_only_some_objects_are_read_twice():
    store = RecordingStore(EncryptedStore(filled(60), encrypted=lambda key: key != "00"))
    assert arrive(store, "00")
    assert not any(arrive(store, f"{number:02}") for number in range(1, 60))
    assert store.count("open") == 16


def test_trust_is_learned_per_bucket_and_endpoint():
    one, same = (S3Store("bucket", prefix).features.etag_trust for prefix in ("a", "b"))
    other = S3Store("bucket", access=Access(endpoint="http://127.0.0.1:1")).features.etag_trust
    assert one is same
    assert other is not one
