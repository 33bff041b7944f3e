"""What is known of the copies in a mirror, by key: a few in memory, many in a temporary file."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from larder.disk import disk_errors
from larder.errors import StoreError

__all__ = ["HELD_COPIES", "Copies", "KnownCopy"]

HELD_COPIES = 100_000
"""So many are kept in memory, about 500 bytes for each."""

_COLUMNS = ("key", "etag", "mirror_etag", "checksum")
_CACHE_KIB = 8 << 10


class KnownCopy(NamedTuple):
    """A copy that was verified.

    Attributes:
        etag: The etag of its source.
        mirror_etag: Its own etag.
        checksum: The checksum of the content; None if the copy was identified by an etag that is
            the MD5 of the content.
    """

    etag: str
    mirror_etag: str
    checksum: str | None


class Copies:
    """Copies by the keys of their objects. May be read by many threads.

    Args:
        held: Maximum number that is kept in memory.
    """

    def __init__(self, held: int = HELD_COPIES) -> None:
        self._held = held
        self._few: dict[str, KnownCopy] = {}
        self._many: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    @classmethod
    def of(cls, rows: Iterable[pa.RecordBatch], held: int = HELD_COPIES) -> Copies:
        """The copies in some rows; of several of an object, the last one counts.

        Args:
            rows: Rows of `larder.manifest.schemas.OBJECTS`, or parts of SAMPLE_ORDER. Rows without
                a ``mirror_etag`` are skipped.
            held: Maximum number that is kept in memory.

        Raises:
            StoreError: ``store.full``: no space is left for temporary files.
        """
        copies = cls(held)
        for batch in rows:
            copies._add(batch)
        return copies

    def get(self, key: str) -> KnownCopy | None:
        """The copy of an object; None if there is none."""
        if self._many is None:
            return self._few.get(key)
        query = "SELECT etag, mirror_etag, checksum FROM copies WHERE key = ?"
        with self._lock, _errors():
            found = self._many.execute(query, (key,)).fetchone()
        return KnownCopy(*found) if found else None

    def _add(self, batch: pa.RecordBatch) -> None:
        known = batch.filter(batch.column("mirror_etag").is_valid())
        # Through numpy: ten times as fast as to_pylist().
        columns = [known.column(name).to_numpy(zero_copy_only=False).tolist() for name in _COLUMNS]
        if self._many is None:
            keys, *others = columns
            self._few.update(zip(keys, map(KnownCopy, *others), strict=True))
            if len(self._few) > self._held:
                self._many = _opened()
                columns = [list(self._few), *map(list, zip(*self._few.values(), strict=True))]
                self._few = {}
        if self._many is not None:
            with _errors():
                insert = "INSERT OR REPLACE INTO copies VALUES (?, ?, ?, ?)"
                self._many.executemany(insert, zip(*columns, strict=True))


def _opened() -> sqlite3.Connection:
    """A database in a file without a name, which is gone with the process."""
    with disk_errors(Path(tempfile.gettempdir())):
        handle, name = tempfile.mkstemp(prefix="larder-copies-")
        os.close(handle)
    try:
        with _errors():
            found = sqlite3.connect(name, isolation_level=None, check_same_thread=False)
            for setting in ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE"):
                found.execute(f"PRAGMA {setting}")
            found.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
            found.execute(
                "CREATE TABLE copies (key TEXT PRIMARY KEY, etag TEXT, mirror_etag TEXT,"
                " checksum TEXT) WITHOUT ROWID"
            )
            found.execute("BEGIN")
    finally:
        os.unlink(name)
    return found


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        message = f"a temporary file cannot be used: {error}"
        raise StoreError("store.full", message, where=tempfile.gettempdir()) from error
