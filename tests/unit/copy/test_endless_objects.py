"""Objects that a store lists as short and sends without end."""

import hashlib

import pytest

from larder.budgets import ByteBudget
from larder.copy.allowance import CopyLimits
from larder.copy.engine import copy_batch
from larder.progress import NullProgress
from larder.store import RetryPolicy, open_store
from larder.store.base import ObjectInfo
from tests.unit.store.socket_server import served

MD5 = hashlib.md5(b"a").hexdigest()


@pytest.mark.parametrize("keys", ["a", "ab"], ids=["alone", "together"])
@pytest.mark.parametrize("size_bytes", [1, 10 << 20], ids=["small", "streamed"])
def test_no_more_is_read_than_was_listed(keys, size_bytes, tmp_path):
    """An answer of 3 GB with the listed etag took as much memory, or space of the disk."""
    sent = []

    def serve(one):
        one.recv(65536)
        head = f'HTTP/1.1 200 OK\r\nETag: "{MD5}"\r\nContent-Length: 1099511627776\r\n\r\n'
        one.sendall(head.encode())
        while len(sent) < 200:
            one.sendall(bytes(1 << 20))
            sent.append(1)

    with served(serve) as port:
        once = RetryPolicy(attempts=1)
        source = open_store("s3://bucket", endpoint=f"http://127.0.0.1:{port}", retry=once)
        failures = copy_batch(
            source,
            open_store(str(tmp_path)),
            [ObjectInfo(key, size_bytes, MD5, 1) for key in keys],
            prefix="",
            limits=CopyLimits(1, ByteBudget(1 << 26)),
            progress=NullProgress(),
            copied=lambda copy: None,
        )
    assert [(each.key, each.code) for each in failures] == [(key, "object.changed") for key in keys]
    assert len(sent) < 100  # some are in the buffers of the system
