"""Counts what is read from a store, for the price of reading it again."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock

from larder.store.base import Features, ObjectInfo, Readable, Reader

__all__ = ["CountedReads"]


class CountedReads(Readable):
    """Forwards every call, and counts the objects or ranges that are read, and their bytes.

    Args:
        inner: The wrapped store.

    Attributes:
        requests: Number of requests, without those that were repeated.
        bytes: What they asked for; of what is opened, the whole range.
    """

    def __init__(self, inner: Readable) -> None:
        self.requests = self.bytes = 0
        self._inner = inner
        self._lock = Lock()

    @property
    def url(self) -> str:
        """As in the wrapped store."""
        return self._inner.url

    @property
    def features(self) -> Features:
        """As in the wrapped store."""
        return self._inner.features

    def region(self) -> str:
        """As in the wrapped store."""
        return self._inner.region()

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        """As in the wrapped store; not counted."""
        return self._inner.list(prefix, start_after=start_after)

    def head(self, key: str) -> ObjectInfo:
        """As in the wrapped store."""
        self._count(0)
        return self._inner.head(key)

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        """As in the wrapped store."""
        reader = self._inner.open(key, offset=offset, length=length, if_match=if_match)
        left = max(0, reader.info.size_bytes - offset)
        self._count(left if length is None else min(length, left))
        return reader

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        """As in the wrapped store."""
        data = self._inner.get(key, offset=offset, length=length, if_match=if_match)
        self._count(len(data))
        return data

    def _count(self, size_bytes: int) -> None:
        with self._lock:
            self.requests += 1
            self.bytes += size_bytes
