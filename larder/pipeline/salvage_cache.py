"""Parts of samples in a cache of encoded records, which has them as they were packed."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from larder.cache.fetch import fetch_file
from larder.cache.file import CacheFileReader, open_file
from larder.cache.layout import CacheFileFacts
from larder.errors import ConfigError, DamageError, NotFoundError, ObjectError
from larder.pipeline.salvage import Wanted
from larder.store.base import Buffer, Closing, ObjectInfo, Reader, Store
from larder.versions.documents import CacheFile

__all__ = ["InCache"]


class InCache(Closing):
    """The cache file of one split of a segment; see `larder.pipeline.salvage.Place`.

    It is opened for the first part that is looked for, if its sha256 is right: LMDB may crash on a
    damaged file. From an object store it is downloaded.

    Args:
        root: The dataset's root.
        file: What was published of it.
        fields: By key of an object, the number of the record and the name of the field.
        folder: A private directory.
    """

    name = "the cache"

    def __init__(
        self, root: Store, file: CacheFile, fields: Mapping[str, tuple[int, str]], folder: Path
    ) -> None:
        self._root = root
        self._file = file
        self._fields = fields
        self._folder = folder
        self._lock = threading.Lock()
        self._reader: CacheFileReader | None = None
        self._damaged = False

    def open(self, key: str, wanted: Wanted, offset: int, length: int) -> Reader | None:
        """See `larder.pipeline.salvage.Place.open`."""
        del wanted
        place = self._fields.get(key)
        reader = self._opened() if place else None
        if reader is None or place is None:
            return None
        number, field = place
        try:
            record = reader[number]
        except (DamageError, IndexError) as error:
            raise ObjectError("object.unreadable", str(error), where=key) from error
        if field not in record:
            return None
        return _Bytes(key, bytes(record[field])[offset : offset + length])

    def close(self) -> None:
        """Close the file."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _opened(self) -> CacheFileReader | None:
        with self._lock:
            if self._reader is None and not self._damaged:
                file = self._file
                facts = CacheFileFacts(file.bytes, file.sha256, file.digest, file.records)
                try:
                    path = fetch_file(self._root, file.path, facts, self._folder)
                    self._reader = open_file(path, facts, verify=True)
                except (DamageError, NotFoundError, ConfigError):
                    self._damaged = True
            return self._reader


class _Bytes(Reader):
    """Bytes in memory."""

    def __init__(self, key: str, data: bytes) -> None:
        self.info = ObjectInfo(key, len(data), "", 0)
        self._data = data

    def __iter__(self) -> Iterator[Buffer]:
        """The bytes."""
        yield self._data

    def close(self) -> None:
        """Nothing to release."""
