"""Counts what is read from a store, for the price of reading it again."""

from __future__ import annotations

from threading import Lock

from larder.store.base import ObjectInfo, Readable, Reader
from larder.store.delegate import DelegatingReadable


class CountedReads(DelegatingReadable):
    """Forwards every call, and counts the objects or ranges that are read, and their bytes.

    Listings are not counted.

    Args:
        inner: The wrapped store.

    Attributes:
        requests: Number of requests, without those that were repeated.
        bytes: What they asked for; of what is opened, the whole range.
    """

    def __init__(self, inner: Readable) -> None:
        super().__init__(inner)
        self.requests = self.bytes = 0
        self._lock = Lock()

    def head(self, key: str) -> ObjectInfo:
        """As in the wrapped store."""
        self._count(0)
        return self.inner.head(key)

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        """As in the wrapped store."""
        reader = self.inner.open(key, offset=offset, length=length, if_match=if_match)
        left = max(0, reader.info.size_bytes - offset)
        self._count(left if length is None else min(length, left))
        return reader

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        """As in the wrapped store."""
        data = self.inner.get(key, offset=offset, length=length, if_match=if_match)
        self._count(len(data))
        return data

    def _count(self, size_bytes: int) -> None:
        with self._lock:
            self.requests += 1
            self.bytes += size_bytes
