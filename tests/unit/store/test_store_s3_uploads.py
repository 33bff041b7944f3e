"""Multipart uploads that nobody will complete: listed by prefix and time, and aborted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from scripted_s3 import Say, scripted_s3

from larder.config.access import Access
from larder.errors import FatalError, StoreError
from larder.store.base import BegunUpload
from larder.store.interrupt import Interrupt
from larder.store.retry import RetryPolicy
from larder.store.s3 import S3Store
from larder.store.s3.bucket import S3Bucket
from larder.store.s3.listing import PendingUpload, list_uploads
from tests.support.servers import S3Server

ODD = ["p/a b+c%2B.bin", "p/grüße/ü", "p/&<x>", "p/plain"]

POLICY = RetryPolicy()


class Bucket:
    """A new bucket of a server."""

    server_name: str

    def __init__(self, server: S3Server) -> None:
        self.name = f"uploads-{uuid4().hex[:8]}"
        server.create_bucket(self.name)
        self.client: Any = server.client()
        access = Access(endpoint=server.endpoint, region=server.region)
        self.access = S3Bucket(self.name, f"s3://{self.name}/", access)

    def begin(self, key: str) -> str:
        answer = self.client.create_multipart_upload(Bucket=self.name, Key=key)
        upload: str = answer["UploadId"]
        return upload


@pytest.fixture(params=["moto_server", "radosgw_server", "rclone_server"])
def bucket(request: pytest.FixtureRequest) -> Iterator[Bucket]:
    bucket = Bucket(request.getfixturevalue(request.param))
    bucket.server_name = request.param
    yield bucket
    bucket.client.close()


def test_uploads_are_listed_by_prefix_and_aborted(bucket: Bucket) -> None:
    begun = {key: bucket.begin(key) for key in ODD}
    again = bucket.begin("p/plain")
    for other in ("pp/x", "q/x", "p"):
        bucket.begin(other)
    found = list_uploads(bucket.access, "p/", POLICY)
    expected = {*begun.items(), ("p/plain", again)}
    assert {(each.key, each.upload_id) for each in found} == expected
    store = S3Store(bucket.name, "p", bucket.access.access)
    assert store.abort_uploads("", lambda _: True) == len(expected)
    assert list_uploads(bucket.access, "p/", POLICY) == []
    assert {each.key for each in list_uploads(bucket.access, "", POLICY)} == {
        "pp/x",
        "q/x",
        "p",
    }
    bucket.begin("p/x")

    def gone(upload: BegunUpload) -> bool:
        where = {"Bucket": bucket.name, "Key": f"p/{upload.key}", "UploadId": upload.id}
        bucket.client.abort_multipart_upload(**where)
        return True

    assert store.abort_uploads("", gone) == 0


def test_a_store_says_how_old_they_are_and_aborts_what_is_chosen(bucket: Bucket) -> None:
    begun = bucket.begin("p/x")
    bucket.begin("p/y")
    bucket.begin("q/x")
    store = S3Store(bucket.name, "p", bucket.access.access)
    seen: list[BegunUpload] = []

    def orphaned(upload: BegunUpload) -> bool:
        seen.append(upload)
        return upload.id == begun

    assert store.abort_uploads("", orphaned) == 1
    assert sorted(upload.key for upload in seen) == ["x", "y"]
    if bucket.server_name != "moto_server":  # which says 2010 of all of them
        assert all(-2 < upload.age_seconds < 120 for upload in seen)
    assert {each.key for each in list_uploads(bucket.access, "", POLICY)} == {"p/y", "q/x"}


def test_a_missing_bucket_is_an_error(moto_server: S3Server) -> None:
    access = Access(endpoint=moto_server.endpoint, region="us-east-1")
    with pytest.raises(StoreError) as caught:
        list_uploads(S3Bucket("missing-bucket", "s3://missing-bucket/", access), "", POLICY)
    assert caught.value.code == "store.missing"


def page(keys: list[str], more: str = "") -> Say:
    uploads = "".join(
        f"<Upload><Key>{key}</Key><UploadId>{n}</UploadId>"
        "<Initiated>2026-01-02T03:04:05.678Z</Initiated></Upload>"
        for n, key in enumerate(keys)
    )
    space = "http://s3.amazonaws.com/doc/2006-03-01/"
    return Say(
        body=f'<ListMultipartUploadsResult xmlns="{space}">{more}{uploads}'
        "</ListMultipartUploadsResult>"
    )


def scripted(endpoint: str) -> S3Bucket:
    return S3Bucket("b", "s3://b/", Access(endpoint=endpoint, region="us-east-1"))


MORE = (
    "<IsTruncated>true</IsTruncated><NextKeyMarker>p/a%2Bb</NextKeyMarker>"
    "<NextUploadIdMarker>7</NextUploadIdMarker>"
)
BEGUN_US = 1767323045678000


def test_a_long_listing_continues_at_its_markers() -> None:
    first, second = page(["p/a%2Bb"], MORE), page(["p/z", "other/ignored"])
    with scripted_s3(first, second) as script:
        found = list_uploads(scripted(script.endpoint), "p/", POLICY)
    assert found == [PendingUpload("p/a%2Bb", "0", BEGUN_US), PendingUpload("p/z", "0", BEGUN_US)]
    assert "key-marker=p%2Fa%252Bb&" in script.asked[1]
    assert "upload-id-marker=7" in script.asked[1]


def test_keys_that_xml_cannot_hold_are_asked_for_in_a_code() -> None:
    answers = (page(["p/bell&#x7;"]), page(["p/a%2Bb", "p/bell%07"], MORE), page(["p/z"]))
    with scripted_s3(*answers) as script:
        found = list_uploads(scripted(script.endpoint), "p/", POLICY)
    assert [upload.key for upload in found] == ["p/a+b", "p/bell\x07", "p/z"]
    assert "encoding-type" not in script.asked[0]
    assert "encoding-type=url" in script.asked[1]
    assert "key-marker=p%2Fa%2Bb&" in script.asked[2]


def test_keys_are_decoded_if_the_server_says_that_they_are_encoded() -> None:
    said = page(["p/a%2Bb"], "<EncodingType>url</EncodingType>")
    with scripted_s3(said) as script:
        assert [u.key for u in list_uploads(scripted(script.endpoint), "p/", POLICY)] == ["p/a+b"]


SENSELESS = ("<html>", "nothing", "<html><IsTruncated>true</IsTruncated></html>")


@pytest.mark.parametrize("answer", [page(["p/x"], MORE), *(Say(body=body) for body in SENSELESS)])
def test_an_endless_or_senseless_listing_is_an_error(answer: Say) -> None:
    with scripted_s3(answer) as script, pytest.raises(StoreError) as caught:
        list_uploads(scripted(script.endpoint), "p/", POLICY)
    assert caught.value.code == "store.refused"


def test_a_stream_that_is_stopped_leaves_no_upload(bucket: Bucket) -> None:
    """Nothing but the network was stopped any more, so its abort was never sent."""
    interrupt = Interrupt()
    store = S3Store(bucket.name, "p", bucket.access.access)
    with interrupt.active(), store.writer("k") as writer:
        writer.write(bytes((16 << 20) + 1))
        assert len(list_uploads(bucket.access, "p/", POLICY)) == 1
        interrupt.stop()
        with pytest.raises(FatalError, match="stopped"):
            writer.commit()
    assert list_uploads(bucket.access, "p/", POLICY) == []
