"""JSON of others that is nested deeper than Python reads: as any other document that is damaged."""

import hashlib

import pytest

from larder.cache.schema import RecordSchema
from larder.config.models.locations import Report
from larder.copy.uploads import UploadRecords
from larder.errors import RetryableError
from larder.source.reports import open_report
from larder.store import open_store
from larder.store.base import ObjectInfo
from larder.store.calls import Call
from larder.store.gcs.answers import gcs_error
from larder.store.gcs.bucket import Response
from tests.support.errors import larder_error

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
    assert records.abort_abandoned(1 << 62) == 0


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
