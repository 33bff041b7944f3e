"""Cache files on this machine, read as one sequence of records.

Files in a local directory are mapped in place. Other files are read from copies: training begins
after the first file is copied, and a thread fetches the rest in reading order. A reader that needs
a file earlier fetches the file itself. A lock makes other processes on the machine wait for the
fetching process, and lets another continue if that process is killed. So no reader depends on the
thread, which a forked child does not have.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from larder.cache.cache_record import CacheFileFacts
from larder.cache.file import CacheFileReader, open_file
from larder.datalayer.cache_place import CachePlace
from larder.datalayer.copies import room_below, stamp_of
from larder.datalayer.elements import schema_of
from larder.datalayer.layer_cache import BUILD_AGAIN, LayerCache
from larder.disk import disk_errors, open_shared, read_file, sha256_file, write_file
from larder.errors import DamageError, LarderError, NotFoundError
from larder.readers.epoch_order import Order
from larder.store.download import download, locked
from larder.store.interrupt import Interrupt

_LOG: Final = logging.getLogger("larder")
_SETTLED_SECONDS: Final = 0.1
_END_SECONDS: Final = 2.0
_ORDER_RECORDS: Final = 1 << 16


class LayerFiles(Sequence[CacheFileReader]):
    """Readers of a cache's files, opened when first taken; for many threads and after a fork."""

    def __init__(self, place: CachePlace, cache: LayerCache) -> None:
        self._place = place
        self._cache = cache
        self._readers: list[CacheFileReader | None] = [None] * len(cache.files)

    def __len__(self) -> int:
        return len(self._readers)

    def __getitem__(self, number: Any) -> Any:
        return self._readers[number] or self.open(number)

    def open_ahead(self, order: Order, position: int) -> None:
        if None not in self._readers:
            return
        first, *others = self._needed(order, position)
        self[first]
        if None in self._readers:
            interrupt = Interrupt()
            given = others, interrupt
            thread = threading.Thread(target=self._open_each, args=given, name="larder-files")
            thread.daemon = True
            thread.start()
            atexit.register(_end, thread, interrupt)

    def _needed(self, order: Order, position: int) -> list[int]:
        """Return the file numbers in the order in which the epoch needs them from a position on."""
        needed: dict[int, None] = {}
        ends = np.cumsum([file.records for file in self._cache.files])
        for start in range(position, int(ends[-1]), _ORDER_RECORDS):
            if len(needed) == len(ends):
                break
            numbers = order.numbers(start, min(start + _ORDER_RECORDS, int(ends[-1])))
            needed |= dict.fromkeys(np.searchsorted(ends, numbers, side="right").tolist())
        return [*(needed | dict.fromkeys(range(len(ends))))]

    def _open_each(self, numbers: Sequence[int], interrupt: Interrupt) -> None:
        for number in numbers:
            try:
                with interrupt.active():
                    interrupt.check()
                    self[number]
            except BaseException as error:  # noqa: BLE001 - a reader that needs the file tries again
                if not interrupt.stopped:
                    _LOG.warning("%s", error)
                return

    def open(self, number: int, *, is_new: bool = False) -> CacheFileReader:
        """Open a file, fetched first if needed; ``is_new``: this process has just built it."""
        place, folder, local = self._place, self._place.folder, self._place.local
        name, facts = self._cache.files[number].name, self._cache.facts(number)
        path, stamp = (folder or local) / name, stamp_of(local / name)
        with _hinting(), nullcontext() if folder else alone(local, f".{name}.lock"):
            if opened := self._readers[number]:  # opened by another thread meanwhile
                return opened
            while True:
                try:
                    with _held(path):
                        if not is_new:
                            _check(path, facts, stamp)
                        # The file's digest covers all records, so no record is checked again.
                        reader = open_file(path, facts, check_records=False)
                    break
                except DamageError:  # also raised if there is no copy
                    if folder or (is_new and path.exists()):
                        raise
                    path.unlink(missing_ok=True)
                    room = room_below(place.copies, place.limit_bytes)
                    download(place.store(), name, path, facts.bytes, facts.sha256, room)
                    is_new = True
            if reader.schema != schema_of(self._cache.leaves):
                message = "the fields of the file are not those of the elements"
                raise DamageError("damage.manifest", message, where=str(path))
            self._readers[number] = reader
        with suppress(OSError):
            os.utime(stamp)
        return reader


def _end(thread: threading.Thread, interrupt: Interrupt) -> None:
    """Let the thread remove its half-fetched file at the end of the program."""
    interrupt.stop()
    thread.join(_END_SECONDS)


@contextmanager
def alone(folder: Path, lock: str) -> Iterator[None]:
    """Wait for a lock in a folder, and hold it: no other thread or process of this machine can."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / lock):
        yield


@contextmanager
def _hinting() -> Iterator[None]:
    """Add a hint to the error about a missing or damaged file."""
    try:
        yield
    except (DamageError, NotFoundError) as error:
        error.hint = BUILD_AGAIN
        raise


@contextmanager
def _held(path: Path) -> Iterator[None]:
    with disk_errors(path, reading=True):
        try:
            handle = open_shared(path)
        except FileNotFoundError:
            raise DamageError("damage.size", "the file is missing", where=str(path)) from None
    try:
        yield
    finally:
        os.close(handle)


def _check(path: Path, facts: CacheFileFacts, stamp: Path) -> None:
    """Compare a file with its digest, unless its stamp shows that it has not changed since.

    A file written a moment ago gets no stamp, because its times may not show another write.
    """
    status = path.stat()
    facts.compare(status.st_size, None, str(path))
    state = f"{status.st_dev} {status.st_ino} {status.st_mtime_ns} {status.st_ctime_ns}".encode()
    with suppress(OSError):
        if read_file(stamp) == state:
            return
    with disk_errors(path, reading=True):
        facts.compare(status.st_size, sha256_file(path), str(path))
    if time.time() - status.st_ctime > _SETTLED_SECONDS:
        with suppress(LarderError):
            write_file(stamp, state)
