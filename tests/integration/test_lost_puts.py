"""Objects that a bucket acknowledges and does not keep are in no record and in no cache."""

from functools import partial

import pyarrow as pa
import pytest
from copy_lab import buckets

import larder
from larder.copy.copy_record import check_kept
from larder.datalayer import stored
from larder.errors import FatalError
from larder.manifest.schemas import OBJECTS
from larder.store import open_store
from tests.support.memory import MemoryStore
from tests.support.runs import between
from tests.support.stores import LosingStore, RecordingStore, keys_of

SOURCE = {f"{name}/{number:03}.bin": b"%d" % number * 400 for name in "ab" for number in range(12)}


@pytest.mark.parametrize("kept_bytes", [None, 10])
@pytest.mark.parametrize("lost", ["a/000.bin", "b/011.bin", ".bin"])
def test_a_copy_that_was_lost_is_not_recorded(lost, kept_bytes):
    with buckets(SOURCE) as lab:
        losing = partial(LosingStore, is_lost=lambda key: key.endswith(lost), kept_bytes=kept_bytes)
        with between(losing), pytest.raises(FatalError) as caught:
            lab.copy()
        assert caught.value.code == "store.refused"
        assert caught.value.where.endswith(lost)
        assert "_larder/copy/copy.json" not in lab.own()
        assert lab.copy()["status"] == "copied"
        assert lab.there() == SOURCE
        assert lab.copy()["status"] == "current"


def test_few_copies_among_many_objects_are_found_with_few_requests():
    store = MemoryStore("kept")
    for number in range(5_000):
        store.put(f"x/{number:05}", b"x")
    recording = RecordingStore(store)
    keys = ["00000", "02500", "02501", "04999"]
    fixed = {"size_bytes": 1, "etag": "", "modified": 0}
    rows = [{"key": key, "mirror_etag": store.head(f"x/{key}").etag, **fixed} for key in keys]
    check_kept(recording, "x/", [pa.RecordBatch.from_pylist(rows, schema=OBJECTS)])
    assert recording.count("head") == 0
    assert recording.count("list") <= 4


def test_a_copy_that_was_replaced_meanwhile_is_named():
    store = MemoryStore("kept")
    store.put("x/k", b"others")
    row = {"key": "k", "mirror_etag": "mine", "size_bytes": 6, "etag": "", "modified": 0}
    with pytest.raises(FatalError, match="was replaced"):
        check_kept(store, "x/", [pa.RecordBatch.from_pylist([row], schema=OBJECTS)])


@pytest.mark.parametrize("kept_bytes", [None, 10])
def test_a_cache_file_that_was_lost_is_not_published(bucket, kept_bytes):
    train = larder.cache_train_dataset("d", "v1", storage=bucket)(lambda: range(10))
    opened = stored.CachePlace.store

    def losing(place: stored.CachePlace) -> LosingStore:
        return LosingStore(opened(place), lambda key: key.endswith(".mdb"), kept_bytes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored.CachePlace, "store", losing)
        with pytest.raises(FatalError) as caught:
            train()
    assert caught.value.code == "store.refused"
    assert not [key for key in keys_of(open_store(bucket)) if key.endswith("cache.json")]
    assert [*map(int, train())] == [*range(10)]
