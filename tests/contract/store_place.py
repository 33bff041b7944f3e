"""Where a contract test puts its objects."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pytest
from required import at_push
from store_gaps import GAPS, RACES

from larder.errors import LarderError
from larder.store import Store, open_store
from tests.support.fake_gcs import FakeGcs
from tests.support.gcs_emulator import GcsEmulator
from tests.support.servers import S3Server

BUCKET = "contract"
S3_SERVERS = ["rclone", *at_push("moto"), pytest.param("radosgw", marks=pytest.mark.radosgw)]
SERVERS = [*S3_SERVERS, *at_push("gcs"), "google"]
"""``gcs`` is an emulator that others wrote; ``google`` keeps conditions and pages."""
KINDS = ["file", "memory", *SERVERS]


@dataclass(frozen=True)
class Place:
    """A fresh, empty store, and how to open it once more."""

    kind: str
    url: str
    server: S3Server | GcsEmulator | FakeGcs | None

    @property
    def scheme(self) -> str:
        """Of its URL."""
        return self.url.partition(":")[0]

    def open(self, url: str | None = None) -> Store:
        endpoint = self.server.endpoint if self.server else None
        return open_store(url or self.url, endpoint=endpoint, retry=None)

    @contextmanager
    def promise(self, name: str) -> Iterator[None]:
        """A promise of the contract: kept, or broken as the tables of gaps and races say."""
        if (self.kind, name) in RACES:
            with suppress(AssertionError, LarderError):
                yield
            return
        if (self.kind, name) not in GAPS:
            yield
            return
        try:
            yield
        except (AssertionError, LarderError, pytest.fail.Exception):
            return
        pytest.fail(f"{self.kind} keeps the promise {name!r}: take it out of GAPS")

    def before_threads(self, store: Store, *keys: str) -> None:
        """Write keys that threads are about to write, where a server cannot make their folders."""
        if (self.kind, "new folder") in RACES:
            for key in keys:
                store.put(key, b"")


def eight_at_once(write: Callable[[bytes], object], lost: type[LarderError]) -> list[bytes]:
    """The contents of those of eight simultaneous writers whose write does not raise ``lost``."""
    start = threading.Barrier(8)

    def won(data: bytes) -> bytes:
        start.wait()
        try:
            write(data)
        except lost:
            return b""
        return data

    with ThreadPoolExecutor(8) as pool:
        return list(filter(None, pool.map(won, [f"content {n}".encode() for n in range(8)])))
