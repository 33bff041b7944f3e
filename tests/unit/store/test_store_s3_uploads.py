"""Multipart uploads that were begun and not completed."""

from __future__ import annotations

from uuid import uuid4

import pytest

from larder.config.urls import Access
from larder.errors import FatalError
from larder.store.interrupt import Interrupt
from larder.store.s3 import S3Store
from tests.support.servers import S3Server


@pytest.mark.parametrize("name", ["moto_server", "radosgw_server", "rclone_server"])
def test_a_stream_that_is_stopped_leaves_no_upload(
    request: pytest.FixtureRequest, name: str
) -> None:
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
