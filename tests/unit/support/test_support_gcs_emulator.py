"""The emulator of the tests: threads, buckets, and the error if it is not installed."""

from __future__ import annotations

from larder.store import open_store
from tests.support.gcs_emulator import GcsEmulator


def test_an_object_can_be_written_while_another_is_read(gcs_server: GcsEmulator) -> None:
    gcs_server.create_bucket("threads")
    gcs_server.create_bucket("threads")
    store = open_store("gs://threads/p", endpoint=gcs_server.endpoint, retry=None)
    store.put("large", bytes(20_000_000))  # more than buffers hold
    with store.open("large") as reader:
        pieces = iter(reader)
        first = next(pieces)
        store.put("other", b"1")
        assert len(first) + sum(map(len, pieces)) == 20_000_000
    assert gcs_server.resource("threads", "p/other")["size"] == "1"
