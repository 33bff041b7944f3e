"""Receipts of copies: one for each set of consecutive objects, once all of them have ended.

Sets overlap: while a slow object keeps one set open, other sets begin and end. So a killed run
repeats at most the sets in progress, and no object waits for the slowest object of a set.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from larder.budgets import map_ahead
from larder.copy.copy_place import CopyPlace
from larder.copy.proof import CopiedObject
from larder.errors import LarderError, NotFoundError
from larder.jobs.manifests import put_named, read_ref
from larder.jobs.results import Totals
from larder.manifest.manifest_files import ManifestWriter
from larder.manifest.schemas import OBJECTS
from larder.manifest.sealed import StoredFile
from larder.store.base import ObjectInfo, Store
from larder.store.interrupt import stopping_waits
from larder.store.own_files import listed

SET_BYTES = 128_000_000
"""Maximum size of the sets that are in progress in all concurrent batches, if none overlap: as much
may be copied again while a set is synced. A larger object is a set by itself."""

SET_OBJECTS = 8_192
"""Maximum number of objects in a set; their rows are in memory until all of them have ended."""

_NAME = re.compile(
    r"[^-]+-(?P<first_row>[0-9]{12})-(?P<rows>[0-9]{1,9})-(?P<sha256>[0-9a-f]{64})\.parquet"
)
_READERS = 4
"""Number of receipts that are read at the same time."""


class CopyReceipt(NamedTuple):
    """Copies that a run made of some rows of the due objects."""

    rows: range
    manifest: StoredFile


def find_receipts(root: Store, place: CopyPlace, run: str = "") -> list[CopyReceipt]:
    """Find the receipts of a run, or of all runs, ordered by name, with one listing."""
    receipts = []
    for info in listed(root, f"{place.receipts}{run}"):
        # Other programs leave files here: .DS_Store, or .nfs0001 of a file deleted while open.
        if name := _NAME.fullmatch(info.key.rpartition("/")[2]):
            first_row, rows = int(name["first_row"]), int(name["rows"])
            manifest = StoredFile(info.key, info.size_bytes, name["sha256"], "receipt")
            receipts.append(CopyReceipt(range(first_row, first_row + rows), manifest))
    return receipts


def receipt_rows(root: Store, receipts: Iterable[CopyReceipt]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of receipts; a missing one is in the record of a run that has just ended."""

    def read(receipt: CopyReceipt) -> list[pa.RecordBatch]:
        with suppress(NotFoundError):
            return list(read_ref(root, receipt.manifest, OBJECTS))
        return []

    with ThreadPoolExecutor(_READERS, thread_name_prefix="receipt") as pool:
        yield from chain.from_iterable(map_ahead(pool, read, receipts, window=_READERS))


@dataclass(eq=False, slots=True)
class _Set:
    """Consecutive objects; ``pending`` is the number of objects that have begun and not ended."""

    first_row: int
    rows: int = 0
    bytes: int = 0
    pending: int = 0
    closed: bool = False
    copies: list[CopiedObject] = field(default_factory=list)


@dataclass(eq=False)
class CopySets(AbstractContextManager["CopySets"]):
    """Divides the objects of a batch into sets, and writes their receipts. Thread-safe.

    When a ``with`` block ends, even by an error, each set in progress gets a receipt of its copies.
    Objects in ``receipts`` of an earlier attempt at the batch are not copied again.
    """

    root: Store
    prefix: str
    folder: Path
    set_bytes: int = SET_BYTES
    receipts: Iterable[CopyReceipt] = ()

    def __post_init__(self) -> None:
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._in_progress: dict[str, _Set] = {}
        self._newest: _Set | None = None
        self._ended: list[_Set] = []
        self._copied: set[str] = set()
        self.done = Totals()
        """The copies of the batch so far, in all attempts."""
        for rows in receipt_rows(self.root, self.receipts):
            self._copied.update(rows.column("key").to_pylist())
            self.done += Totals(rows.num_rows, sum(rows.column("size_bytes").to_pylist()))

    def divide(self, objects: Iterable[ObjectInfo], first_row: int) -> Iterator[ObjectInfo]:
        """Yield the objects that have to be copied; an object is in progress once it is taken."""
        for row, info in enumerate(objects, first_row):
            if info.key in self._copied:
                continue
            newest = self._newest
            if newest and (
                newest.bytes + info.size_bytes > self.set_bytes or newest.rows >= SET_OBJECTS
            ):
                self._close()
                self.write(wait=True)  # limits the copies without a receipt
            with self._lock:
                newest = self._newest = self._newest or _Set(row)
                newest.rows = row + 1 - newest.first_row
                newest.bytes += info.size_bytes
                newest.pending += 1
                self._in_progress[info.key] = newest
            yield info
        self._close()

    def _close(self) -> None:
        with self._lock:
            newest, self._newest = self._newest, None
            if newest is not None:
                newest.closed = True
                if not newest.pending:
                    self._ended.append(newest)

    def copied(self, copy: CopiedObject) -> None:
        """Note that an object was copied and verified."""
        self._end(copy.key, copy)

    def failed(self, key: str) -> None:
        """Note that an object could not be copied."""
        self._end(key, None)

    def _end(self, key: str, copy: CopiedObject | None) -> None:
        with self._lock:
            ended = self._in_progress.pop(key, None)
            if ended is None:  # two parts of an object have failed
                return
            if copy is not None:
                self.done += Totals(1, copy.size_bytes)
                ended.copies.append(copy)
            ended.pending -= 1
            if ended.closed and not ended.pending:
                self._ended.append(ended)

    def write(self, *, wait: bool = False) -> None:
        """Write the receipts of ended sets; ``wait`` for a thread that does so, or leave it."""
        if not self._writing.acquire(blocking=wait):
            return
        try:
            while True:
                with self._lock:
                    if not self._ended:
                        return
                    ended = self._ended.pop()
                try:
                    self._write(ended)
                except BaseException:  # it is tried again at the end
                    with self._lock:
                        self._ended.append(ended)
                    raise
        finally:
            self._writing.release()

    def _write(self, done: _Set) -> None:
        if not done.copies:
            return
        self.root.sync()  # a receipt says that its copies are durable
        with ManifestWriter(self.folder / f"{done.first_row}.parquet", OBJECTS) as writer:
            writer.append(done.copies)
        rows = f"{done.first_row:012d}-{done.rows}"
        key = f"{self.prefix}{rows}-{writer.file.sha256}.parquet"
        put_named(self.root, key, writer.file, "receipt")
        writer.file.path.unlink()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._close()
        with self._lock:
            self._ended += set(self._in_progress.values())
            self._in_progress.clear()
        if error is None:
            self.write(wait=True)
        else:
            # The first error is the relevant one. A stop does not end the wait for the limit:
            # copies without a receipt would be made again.
            with suppress(LarderError), stopping_waits(None):
                self.write(wait=True)
