"""An object as a seekable file, for libraries that read files: each read is one range request."""

from __future__ import annotations

import io

from larder.errors import LarderError
from larder.store.base import ObjectInfo, Readable

__all__ = ["ObjectFile"]


class ObjectFile(io.RawIOBase):
    """A file over an object, which is read on the condition that it has not changed.

    Args:
        store: The store of the object.
        info: The object, as it was listed.

    Attributes:
        error: The error of the last read that failed: libraries may raise another one instead.
    """

    def __init__(self, store: Readable, info: ObjectInfo) -> None:
        super().__init__()
        self.error: LarderError | None = None
        self._store = store
        self._info = info
        self._position = 0

    def readable(self) -> bool:
        """Always true."""
        return True

    def seekable(self) -> bool:
        """Always true."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position; nothing is read."""
        base = {io.SEEK_CUR: self._position, io.SEEK_END: self._info.size_bytes}.get(whence, 0)
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        """The position."""
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read one range of the object."""
        length = min(len(buffer), self._info.size_bytes - self._position)
        if length <= 0:
            return 0
        try:
            data = self._store.get(
                self._info.key,
                offset=self._position,
                length=length,
                if_match=self._info.etag or None,
            )
        except LarderError as error:
            self.error = error
            raise
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
