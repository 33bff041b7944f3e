"""An object as a seekable file, for libraries that read files: each read is one ranged request."""

from __future__ import annotations

from larder.errors import LarderError
from larder.seekable import RangedFile
from larder.store.base import Readable


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
