"""What is known of the copies in a mirror, by key: a few in memory, many in a temporary file."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from larder.disk import disk_errors
from larder.errors import StoreError

HELD_COPIES = 100_000
"""So many are kept in memory, about 170 bytes for each: a dict would take three times as much."""

_COLUMNS = ["key", "etag", "mirror_etag", "checksum"]
_CACHE_KIB = 8 << 10


class KnownCopy(NamedTuple):
    """A copy that was verified; ``etag`` is that of its source. The checksum is None if it was
    identified by an etag that is the MD5 of the content.
    """

    etag: str
    mirror_etag: str
    checksum: str | None


class Copies:
    """Copies by key, at most ``held`` of them in memory. May be read by many threads."""

    def __init__(self, held: int = HELD_COPIES) -> None:
        self._held = held
        self._count = 0
        self._few: list[pa.RecordBatch] = []
        self._index: _Index | None = None
        self._many: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    @classmethod
    def of(cls, rows: Iterable[pa.RecordBatch], held: int = HELD_COPIES) -> Copies:
        """The copies in rows of OBJECTS, or parts of SAMPLE_ORDER; of several of an object, the
        last one counts, and rows without a ``mirror_etag`` are skipped.
        """
        copies = cls(held)
        for batch in rows:
            copies._add(batch)
        if copies._few:
            copies._index, copies._few = _Index(copies._few), []
        return copies

    def get(self, key: str) -> KnownCopy | None:
        if self._many is None:
            return self._index.get(key) if self._index else None
        query = "SELECT etag, mirror_etag, checksum FROM copies WHERE key = ?"
        with self._lock, _errors():
            found = self._many.execute(query, (key,)).fetchone()
        return KnownCopy(*found) if found else None

    def _add(self, batch: pa.RecordBatch) -> None:
        known = batch.select(_COLUMNS).filter(batch.column("mirror_etag").is_valid())
        if not known.num_rows:
            return
        self._count += known.num_rows
        self._few.append(known)
        if self._many is None and self._count > self._held:
            self._many = _opened()
        if self._many is not None:
            for each in self._few:
                _insert(self._many, each)
            self._few = []


class _Index:
    """Copies in columns, found by the hashes of their keys."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        hashes = np.array([hash(key) for each in batches for key in _values(each, "key")], np.int64)
        order = np.argsort(hashes, kind="stable")
        self._hashes = array("q", hashes[order].tobytes())
        self._rows = array("q", order.tobytes())
        self._columns = [
            _Texts(pa.concat_arrays([each.column(name) for each in batches])) for name in _COLUMNS
        ]

    def get(self, key: str) -> KnownCopy | None:
        wanted = hash(key)
        place = bisect_right(self._hashes, wanted)
        while place and self._hashes[place - 1] == wanted:
            place -= 1
            row = self._rows[place]
            keys, etags, mirror_etags, checksums = self._columns
            if keys.get(row) == key:
                return KnownCopy(etags.get(row), mirror_etags.get(row), checksums.get(row) or None)
        return None


class _Texts:
    """A column of texts, empty for null; Arrow takes three times as long to return one."""

    def __init__(self, column: pa.StringArray) -> None:
        _, stops, data = column.buffers()
        self._stops = memoryview(stops).cast("B").cast("i")[column.offset :]
        self._data = memoryview(data or b"")

    def get(self, row: int) -> str:
        return str(self._data[self._stops[row] : self._stops[row + 1]], "utf-8")


def _insert(connection: sqlite3.Connection, batch: pa.RecordBatch) -> None:
    with _errors():
        insert = "INSERT OR REPLACE INTO copies VALUES (?, ?, ?, ?)"
        rows = zip(*(_values(batch, name) for name in _COLUMNS), strict=True)
        connection.executemany(insert, rows)


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    # Through numpy: ten times as fast as to_pylist().
    found: list[Any] = batch.column(name).to_numpy(zero_copy_only=False).tolist()
    return found


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
