from uuid import uuid4

import pytest
from scripted_s3 import Say, scripted_s3

from larder.config.urls import Access
from larder.errors import FatalError
from larder.store.interrupt import Interrupt
from larder.store.s3 import S3Store
from larder.store.s3.bucket import S3Bucket
from larder.store.s3.store import list_uploads
from tests.support.errors import larder_error
from tests.support.servers import S3Server, assemble_wrongly


@pytest.mark.parametrize("name", ["moto_server", "radosgw_server", "rclone_server"])
def test_a_stream_that_is_stopped_leaves_no_upload(request, name):
    """Nothing but the network was stopped any more, so its abort was never sent."""
    server: S3Server = request.getfixturevalue(name)
    bucket = f"uploads-{uuid4().hex[:8]}"
    server.create_bucket(bucket)
    interrupt = Interrupt()
    store = S3Store(bucket, "p", Access(endpoint=server.endpoint, region=server.region))
    with interrupt.active(), store.writer("k") as writer:
        writer.write(bytes((16 << 20) + 1))
        assert server.uploads(bucket, "p/") == ["p/k"]
        interrupt.stop()
        with pytest.raises(FatalError, match="stopped"):
            writer.commit()
    assert server.uploads(bucket, "p/") == []


@pytest.mark.push
@pytest.mark.parametrize("name", ["moto_server", "radosgw_server", "rclone_server"])
def test_a_stream_that_the_server_assembles_wrongly_is_removed(request, monkeypatch, name):
    server: S3Server = request.getfixturevalue(name)
    server.create_bucket("wrong")
    store = S3Store("wrong", "p", Access(endpoint=server.endpoint, region=server.region))
    data = b"a" * (16 << 20) + b"b" * (16 << 20) + b"c"
    with store.writer("right") as writer:
        writer.write(data)
        right = writer.commit()
    assert store.get("right") == data
    assemble_wrongly(monkeypatch)
    with store.writer("wrong") as writer:
        writer.write(data)
        with larder_error("object.mismatch"):
            writer.commit()
    assert [(info.key, info.etag) for page in store.list() for info in page] == [
        ("right", right.etag)
    ]


@pytest.mark.parametrize("name", ["radosgw_server", "rclone_server"])
def test_old_uploads_below_the_prefix_are_aborted(request, name):
    server: S3Server = request.getfixturevalue(name)
    bucket = f"uploads-{uuid4().hex[:8]}"
    server.create_bucket(bucket)
    client = server.client()
    keys = ("p/a b+c%2B", "p/kept", "p/\u00fc", "pp/x", "q/x")
    begun = {
        key: client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"] for key in keys
    }
    client.close()
    store = S3Store(bucket, "p", Access(endpoint=server.endpoint, region=server.region))
    assert store.abort_uploads(3600) == 0
    assert len(server.uploads(bucket, "")) == len(keys)
    assert store.abort_uploads(-60, {begun["p/kept"]}) == 2
    assert server.uploads(bucket, "") == ["p/kept", "pp/x", "q/x"]


def _page(key: str, more: str = "") -> Say:
    space = "http://s3.amazonaws.com/doc/2006-03-01/"
    begun = f"<UploadId>1</UploadId><Initiated>{BEGUN}</Initiated>"
    return Say(
        body=f'<ListMultipartUploadsResult xmlns="{space}">{more}<Upload><Key>{key}</Key>{begun}'
        "</Upload></ListMultipartUploadsResult>"
    )


def _scripted(endpoint: str) -> S3Bucket:
    return S3Bucket("b", "s3://b/", Access(endpoint=endpoint, region="us-east-1"))


BEGUN = "2026-01-02T03:04:05.678Z"
MORE = (
    "<IsTruncated>true</IsTruncated><NextKeyMarker>p/a%2Bb</NextKeyMarker>"
    "<NextUploadIdMarker>7</NextUploadIdMarker>"
)


def test_a_long_listing_of_uploads_continues_at_its_markers():
    with scripted_s3(_page("p/a%2Bb", MORE), _page("p/z")) as script:
        uploads = list(list_uploads(_scripted(script.endpoint), "p/"))
    assert uploads == [(key, "1", 1767323045678000) for key in ("p/a%2Bb", "p/z")]
    assert "key-marker=p%2Fa%252Bb&" in script.asked[1]
    assert "upload-id-marker=7" in script.asked[1]


@pytest.mark.parametrize("answer", [_page("p/x", MORE), Say(body="<html>"), Say(body="nothing")])
def test_an_endless_or_senseless_listing_of_uploads_is_an_error(answer):
    with scripted_s3(answer) as script, larder_error("store.refused"):
        list(list_uploads(_scripted(script.endpoint), "p/"))
