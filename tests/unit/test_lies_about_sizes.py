"""Sizes in documents that the file or the plan cannot hold are refused before memory is taken."""

import hashlib
import io
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from larder.cache.cache_record import Codec, RecordPlaces, empty_columns
from larder.cache.schema import Field, RecordSchema
from larder.config.models.locations import Report
from larder.copy.uploads import UploadRecords
from larder.datalayer.elements import Leaf
from larder.datalayer.layer_cache import FORMAT, LayerCache, LayerFile
from larder.errors import SHOWN_CHARACTERS, Failure, LarderError, RetryableError
from larder.shards.formats import shard_format
from larder.source.reports import open_report
from larder.store import open_store
from larder.store.base import ObjectInfo
from larder.store.calls import Call
from larder.store.gcs.answers import gcs_error
from larder.store.gcs.bucket import Response
from larder.versions.documents import SplitFacts
from tests.support.errors import larder_error
from tests.support.packing import indexed, pack, planned, surveyed
from tests.support.sample_orders import Content, order_samples

SHA = "0" * 64


def layer_cache(leaf: Leaf, records: int, size_bytes: int) -> LayerCache:
    file = LayerFile(size_bytes, SHA, SHA, records)
    return LayerCache(FORMAT, "d/v", "arrays", {}, (leaf,), (file,))


@pytest.mark.parametrize(
    ("dtype", "stored", "is_right"),
    [
        ("float32", (250_000,), True),  # 1 MB in a cache of 1 TB
        ("float32", (2**31,), False),
        ("float32", (2**63 - 1,), False),
        ("float32", (0, 2**31, 2**31, 2**31), False),
        ("float32", (0, 3), True),
        ("float32", (1,) * 40, False),
        ("complex64", (125_000,), True),
        ("complex64", (125_001,), False),
        ("str", (125_000,), True),
        ("str", (125_001,), False),
        ("float32", (None, 2**31), True),  # which is read into lists, record by record
    ],
)
def test_a_narrowest_shape_fits_into_the_file(dtype, stored, is_right):
    cache = layer_cache(Leaf((), dtype, (None,) * len(stored), stored), 10**6, 10**12)
    if is_right:
        cache.check()
    else:
        with pytest.raises(ValueError, match=r"shape|bytes"):
            cache.check()


def test_a_record_of_another_shape_is_damage():
    """Even where numpy would repeat its value."""
    schema = RecordSchema((Field("a", "int64", (None,)), Field("b", "int64", (None,))))
    record = Codec(schema).encode({"a": np.arange(3), "b": np.arange(1)})
    columns = empty_columns([Field("a", "int64", (None,)), Field("b", "int64", (3,))], 2)
    number = np.array([0])
    places = RecordPlaces(np.frombuffer(record, np.uint8), number, number, number + len(record))
    with larder_error("damage.record"):
        Codec(schema).read_rows(columns, number, places, check=False)


def test_a_split_has_a_sample_in_each_shard():
    facts = SplitFacts(10, 10, 0, ("segments/a/shards/train/d-{0..9}.tar",))
    facts.check()
    with pytest.raises(ValueError, match="9 samples"):
        replace(facts, samples=9).check()


def test_a_compressed_array_in_a_batch_is_not_unpacked(tmp_path):
    store = open_store(str(tmp_path))
    batch = order_samples(store, [Content("a", {"txt": b"one"}, 3)])
    format_ = surveyed("batches", [batch])
    (shard,) = pack(batch, store, format_, planned(batch, format_, 1, samples_per_shard=9))
    data = io.BytesIO(store.get(shard.name))
    with (
        zipfile.ZipFile(data, "a", zipfile.ZIP_DEFLATED) as archive,
        pytest.warns(UserWarning, match="Duplicate name"),
    ):
        archive.writestr("label.npy", bytes(1 << 20))
    store.put(shard.name, data.getvalue())
    with shard_format("batches").open(store, shard.name) as reader, larder_error("damage.record"):
        reader.read(indexed(shard)[0])


@pytest.mark.parametrize("length", [1_024, 30_000_000])
def test_a_long_key_is_not_shown_whole(length):
    key = "k" * length
    error = LarderError("object.bad_key", f"{key} is no key", where=f"s3://b/{key}", hint=key)
    lines = [str(error), Failure.of(key, error).line, Failure(key, error.code, "bad").line]
    assert all((key in line) == (length == 1_024) for line in lines)
    assert max(map(len, lines)) < 4 * SHOWN_CHARACTERS


DEEP = b"[" * 100_000
CALL = Call("gs://bucket/", "k")


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path))


def test_a_record_of_an_upload_is_ignored(store):
    store.put(f"uploads/{hashlib.sha256(b'k').hexdigest()[:32]}.json", DEEP)
    records = UploadRecords(store, "uploads/")
    assert [info.size_bytes for page in store.list("uploads/") for info in page] == [len(DEEP)]
    assert records.find(ObjectInfo("k", 1, "e", 0), "k", 1) is None
    records.abort_recorded(1 << 62)


def test_a_manifest_of_a_report_is_refused(store, tmp_path):
    store.put("report/manifest.json", DEEP)
    with larder_error("config.inventory"):
        open_report(Report(url=f"{tmp_path}/report/manifest.json"), "s3://source/", open_store)


def test_a_schema_of_a_cache_is_refused():
    with larder_error("cache.format"):
        RecordSchema.parse(DEEP, "cache.json")


def test_answers_of_google_cloud_storage_are_refused():
    with larder_error("store.refused"):
        Response(200, {}, DEEP, CALL).json()
    assert isinstance(gcs_error(503, DEEP, "", CALL), RetryableError)
