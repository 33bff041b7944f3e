"""Files for libraries that read files, over what is read in ranges, such as an object."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from larder.errors import LarderError

if TYPE_CHECKING:
    from larder.store.base import Readable

Ranges = Callable[[int, int], bytes]
"""Returns the bytes of a range that is inside the file: an offset and a length."""


class RangedFile(io.RawIOBase):
    """A seekable file, of which each read is one range. Nothing is kept between reads."""

    def __init__(self, ranges: Ranges, size_bytes: int) -> None:
        super().__init__()
        self._ranges = ranges
        self._size_bytes = size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}.get(whence, 0)
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Read one range, up to the end if ``size`` is negative."""
        left = max(0, self._size_bytes - self._position)
        length = left if size is None or size < 0 else min(size, left)
        if not length:
            return b""
        data = self._ranges(self._position, length)
        self._position += len(data)
        return data

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class ObjectFile(RangedFile):
    """An object as a file, read on the condition that it has this etag, if it is not empty.

    ``error`` is that of the last read that failed: libraries may raise another one instead.
    """

    def __init__(self, store: Readable, key: str, size_bytes: int, etag: str = "") -> None:
        super().__init__(self._get, size_bytes)
        self.error: LarderError | None = None
        self._store = store
        self._key = key
        self._etag = etag or None

    def _get(self, offset: int, length: int) -> bytes:
        try:
            return self._store.get(self._key, offset=offset, length=length, if_match=self._etag)
        except LarderError as error:
            self.error = error
            raise
