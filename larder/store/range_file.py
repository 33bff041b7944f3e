"""An object as a seekable file, for libraries that read files: each read is one ranged request."""

from __future__ import annotations

import io

from larder.store.base import Readable

__all__ = ["RangeFile"]


class RangeFile(io.RawIOBase):
    """A file over an object. Nothing is kept between reads.

    Args:
        store: The store of the object.
        key: Its key.
        size_bytes: Its length if that is known; otherwise it is asked for.

    Raises:
        LarderError: An error of the store; from a read, too.
    """

    def __init__(self, store: Readable, key: str, size_bytes: int | None = None) -> None:
        self._store = store
        self._key = key
        self._position = 0
        if size_bytes is None:
            with store.open(key, length=1) as reader:
                size_bytes = reader.info.size_bytes
        self._size_bytes = size_bytes

    def readable(self) -> bool:
        """Always true."""
        return True

    def seekable(self) -> bool:
        """Always true."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position; nothing is read."""
        base = {io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}.get(whence, 0)
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        """The position."""
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Read a range of the object; up to its end if ``size`` is negative."""
        left = max(0, self._size_bytes - self._position)
        length = left if size is None or size < 0 else min(size, left)
        if not length:
            return b""
        data = self._store.get(self._key, offset=self._position, length=length)
        self._position += len(data)
        return data
