"""Seekable files for libraries, over objects that are read in ranges."""

from __future__ import annotations

import io

from larder.errors import LarderError
from larder.store.base import Readable


class ObjectFile(io.RawIOBase):
    """An object as a seekable file: each read is one range, and nothing is kept between reads.

    Reads require the etag, unless it is empty. ``error`` is the error of the last failed read,
    because libraries may raise another error instead.
    """

    def __init__(self, store: Readable, key: str, size_bytes: int, etag: str = "") -> None:
        super().__init__()
        self.error: LarderError | None = None
        self._store = store
        self._key = key
        self._size_bytes = size_bytes
        self._etag = etag or None
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}.get(whence, 0)
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size_bytes - self._position)
        length = left if size is None or size < 0 else min(size, left)
        if not length:
            return b""
        try:
            data = self._store.get(
                self._key, offset=self._position, length=length, if_match=self._etag
            )
        except LarderError as error:
            self.error = error
            raise
        self._position += len(data)
        return data

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
