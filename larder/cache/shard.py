"""Reads the parts of samples out of a shard, in one pass from front to back."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

from larder.errors import DamageError
from larder.store import object_url
from larder.store.base import Store

__all__ = ["ShardReader"]


class ShardReader:
    """A shard being read; a context manager.

    Args:
        store: The store with the shard.
        key: Its key.

    Attributes:
        url: The shard's URL, for errors.
    """

    def __init__(self, store: Store, key: str) -> None:
        self.url = object_url(store.url, key)
        self._reader = store.open(key)
        self._buffers: Iterator[bytes | bytearray | memoryview] = iter(self._reader)
        self._buffer = memoryview(b"")
        self._position = 0

    def read(self, offset: int, length: int) -> bytes:
        """The bytes of a range, which must not begin before the end of the previous one.

        Raises:
            DamageError: ``damage.manifest``: it does; ``damage.size``: the shard is too short.
        """
        if offset < self._position:
            message = f"the index goes back from byte {self._position} to {offset}"
            raise DamageError("damage.manifest", message, where=self.url)
        for _ in self._take(offset - self._position):
            pass
        return b"".join(self._take(length))

    def _take(self, length: int) -> Iterator[memoryview]:
        while length:
            if not self._buffer:
                self._buffer = self._next(length)
            piece, self._buffer = self._buffer[:length], self._buffer[length:]
            length -= len(piece)
            self._position += len(piece)
            yield piece

    def _next(self, missing: int) -> memoryview:
        for buffer in self._buffers:
            return memoryview(buffer).cast("B")
        message = f"the shard ends at byte {self._position}, {missing} bytes too early"
        raise DamageError("damage.size", message, where=self.url)

    def __enter__(self) -> ShardReader:
        """Return the reader itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the shard."""
        self._reader.close()
