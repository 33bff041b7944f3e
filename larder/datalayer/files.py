"""The files of a cache on this machine, read as one sequence of records.

Files in a directory are mapped where they are. Others are read from copies, and training begins
with the one that it reads first: a thread fetches the rest, in the order in which they are read.
Whoever needs one before that opens it himself. A lock makes all of a machine wait for the one that
fetches it, and another go on if that is killed. So nobody waits for the thread, which a forked
child does not have.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import accumulate
from pathlib import Path
from typing import Final

import numpy as np

from larder.cache.file import CacheFileReader, open_file
from larder.cache.record import CacheFileFacts, Column
from larder.datalayer.copies import room_below, stamp_of
from larder.datalayer.document import BUILD_AGAIN, LayerCache
from larder.datalayer.elements import schema_of
from larder.datalayer.place import Place
from larder.disk import disk_errors, open_shared, read_file, sha256_file, write_file
from larder.errors import DamageError, LarderError, NotFoundError
from larder.readers.order import Numbers, Order
from larder.store.download import download, locked
from larder.store.interrupt import Interrupt

_LOG: Final = logging.getLogger("larder")
_SETTLED_SECONDS: Final = 0.1
_END_SECONDS: Final = 2.0
_ORDER_RECORDS: Final = 1 << 16


class LayerFiles:
    """The records of a cache. May be used by many threads and after a fork, and is pickled with the
    paths of the files that are open.
    """

    def __init__(
        self, place: Place, cache: LayerCache, readers: Sequence[CacheFileReader | None] = ()
    ) -> None:
        self._place = place
        self._cache = cache
        self._starts = [0, *accumulate(file.records for file in cache.files)]
        self._readers = list(readers) or [None] * len(cache.files)

    def __reduce__(self) -> tuple[object, ...]:
        return LayerFiles, (self._place, self._cache, self._readers)

    def read_into(
        self, columns: Mapping[str, Column], rows: Sequence[int], indices: Numbers
    ) -> None:
        """As `larder.cache.file.CacheFileReader.read_into`."""
        if len(self._readers) == 1:
            self._file(0).read_into(columns, rows, indices)
            return
        homes, places = self._homes(indices), np.asarray(rows)
        for home in sorted(set(homes.tolist())):
            (some,) = np.nonzero(homes == home)
            numbers = indices[some] - self._starts[home]
            self._file(home).read_into(columns, places[some], numbers)

    def open_all(self, *, is_new: bool) -> None:
        """Open every file; of one that this process has built, nothing is compared."""
        for number in range(len(self._readers)):
            self._opened(number, is_new=is_new)

    def open_ahead(self, order: Order, position: int) -> None:
        """Open the file with the record at a position of an order, and have a thread open those
        that come after it.
        """
        if None not in self._readers:
            return
        first, *others = self._needed(order, position)
        self._file(first)
        if None in self._readers:
            interrupt = Interrupt()
            given = others, interrupt
            thread = threading.Thread(target=self._open_each, args=given, name="larder-files")
            thread.daemon = True
            thread.start()
            atexit.register(_end, thread, interrupt)

    def _needed(self, order: Order, position: int) -> list[int]:
        """The files in the order in which an epoch needs them, from a position on."""
        needed: dict[int, None] = {}
        for start in range(position, self._starts[-1], _ORDER_RECORDS):
            if len(needed) == len(self._readers):
                break
            stop = min(start + _ORDER_RECORDS, self._starts[-1])
            needed |= dict.fromkeys(self._homes(order.numbers(start, stop)).tolist())
        return [*(needed | dict.fromkeys(range(len(self._readers))))]

    def _homes(self, indices: Numbers) -> Numbers:
        return np.searchsorted(self._starts, indices, side="right") - 1

    def _open_each(self, numbers: Sequence[int], interrupt: Interrupt) -> None:
        for number in numbers:
            try:
                with interrupt.active():
                    interrupt.check()
                    self._file(number)
            except BaseException as error:  # noqa: BLE001 - who needs the file tries again
                if not interrupt.stopped:
                    _LOG.warning("%s", error)
                return

    def _file(self, number: int) -> CacheFileReader:
        return self._readers[number] or self._opened(number, is_new=False)

    def _opened(self, number: int, *, is_new: bool) -> CacheFileReader:
        place, folder, local = self._place, self._place.folder, self._place.local
        name, facts = self._cache.files[number].name, self._cache.facts(number)
        path, stamp = (folder or local) / name, stamp_of(local / name)
        with _hinting(), nullcontext() if folder else alone(local, f".{name}.lock"):
            if opened := self._readers[number]:  # by another thread, meanwhile
                return opened
            while True:
                try:
                    with _held(path):
                        if not is_new:
                            _check(path, facts, stamp)
                        # The digest says that all is as it was built; a record is not checked.
                        reader = open_file(path, facts, check_records=False)
                    break
                except DamageError:  # or there is no copy
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
    """At the end of the program, have a thread remove what it has fetched half of."""
    interrupt.stop()
    thread.join(_END_SECONDS)


@contextmanager
def alone(folder: Path, lock: str) -> Iterator[None]:
    """Wait until no other process of this machine, or thread, has a lock in a folder."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / lock):
        yield


@contextmanager
def _hinting() -> Iterator[None]:
    """Say what to do about a file that is missing, or is not the one that was published."""
    try:
        yield
    except (DamageError, NotFoundError) as error:
        error.hint = BUILD_AGAIN
        raise


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Keep a file from being removed until the block ends."""
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
    """Compare a file with its digest, unless that was done and it has not been written since.

    The system's times of the file say that; what was written a moment ago is compared again.
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
