"""Roles and public buckets, against a server that enforces permissions."""

import uuid
from typing import Any

import pytest

from larder.config.urls import Access
from larder.errors import LarderError
from larder.store import open_store
from tests.support.errors import larder_error
from tests.support.servers import S3Server

pytestmark = pytest.mark.radosgw


@pytest.fixture
def bucket(radosgw_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"access-{uuid.uuid4().hex[:12]}"
    radosgw_server.create_bucket(name)
    for variable, value in radosgw_server.environment.items():
        monkeypatch.setenv(variable, value)
    return name


def opened(server: S3Server, bucket: str, **fields: Any) -> Any:
    return open_store(f"s3://{bucket}/", access=Access(endpoint=server.endpoint, **fields))


def test_a_role_is_assumed_at_the_server_itself(radosgw_server, bucket):
    store = opened(radosgw_server, bucket, role=radosgw_server.role)
    store.put("k", b"by the role")
    with store.writer("large") as writer:
        writer.write(b"x" * (6 << 20))
        writer.commit()
    assert store.get("k") == b"by the role"
    assert {info.key for page in store.list() for info in page} == {"k", "large"}
    store.delete("k")
    nobody = opened(radosgw_server, bucket, role=f"{radosgw_server.role}-not-there")
    with larder_error("store.denied") as caught:
        nobody.get("large")
    assert f"no credentials of the role {radosgw_server.role}-not-there" in caught.value.message


def test_anonymous_requests_read_what_is_public(radosgw_server, bucket, monkeypatch):
    client = radosgw_server.client()
    client.put_bucket_acl(Bucket=bucket, ACL="public-read")
    client.put_object(Bucket=bucket, Key="public", Body=b"1", ACL="public-read")
    client.put_object(Bucket=bucket, Key="private", Body=b"1")
    client.close()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    store = opened(radosgw_server, bucket, anonymous=True)
    assert [info.key for page in store.list() for info in page] == ["private", "public"]
    assert store.get("public") == b"1"
    for call in (lambda: store.get("private"), lambda: store.put("new", b"1")):
        with pytest.raises(LarderError) as caught:
            call()
        assert caught.value.code in ("object.unreadable", "store.denied")
