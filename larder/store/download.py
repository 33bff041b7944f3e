"""Downloads published files to a directory of this machine once, and verifies them.

Threads read several ranges of a large file at once, which a server delivers faster than one stream.
The sha256 is computed by reading the file in order, so that no range is held in memory.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from larder.disk import Draft, check_inside, disk_errors, draft, file_lock
from larder.errors import DamageError, StoreError
from larder.store.base import Readable
from larder.store.interrupt import Answers, Interrupt, interrupted_by, put_answer, result_of
from larder.store.keys import object_url
from larder.store.own_files import once_more, read_digest
from larder.units import format_bytes

LARGE_BYTES: Final = 64_000_000
"""A file of more bytes is read in ranges."""

_RANGE_BYTES: Final = 16 << 20
_THREADS: Final = 8

Room = Callable[[Path, int], AbstractContextManager[None]]
"""Makes room at a path for a file of a size; the file is created before the context ends."""

VARIABLE = "LARDER_CACHE_DIR"
"""Environment variable that names the directory of downloaded files."""


def cache_directory(given: str | Path | None = None) -> Path:
    """Return the download directory: ``given``, ``$LARDER_CACHE_DIR`` or ``~/.cache/larder``."""
    return Path(given or os.environ.get(VARIABLE) or "~/.cache/larder").expanduser()


@contextmanager
def free_room(path: Path, size_bytes: int) -> Iterator[None]:
    """Refuse a file that does not fit on the disk."""
    with disk_errors(path):
        free_bytes = shutil.disk_usage(path.parent).free
    if free_bytes < size_bytes:
        need, free = format_bytes(size_bytes), format_bytes(free_bytes)
        message = f"the file needs {need}, but only {free} are free"
        hint = "make room there, or choose another directory"
        raise StoreError("store.full", message, where=str(path.parent), hint=hint)
    yield


def download_once(
    store: Readable, key: str, path: Path, size_bytes: int, sha256: str, room: Room = free_room
) -> None:
    """Download a file unless it exists; it appears under its name once verified.

    One process or thread downloads the file, and others that need it wait. If the downloader is
    killed, the system releases its lock, and a waiting process starts again. The name of ``path``
    has to imply the content: an existing file of this name and length is used.

    Raises:
        DamageError: ``damage.size`` or ``damage.digest``: the store has other bytes.
        ConfigError: ``config.path``: the directory cannot be written.
        LarderError: ``store.full``; or an error of the store.
    """
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    if not is_downloaded(path, size_bytes):
        with locked(path.with_name(f".{path.name}.lock")):
            download(store, key, path, size_bytes, sha256, room)


def download(
    store: Readable,
    key: str,
    path: Path,
    size_bytes: int,
    sha256: str,
    room: Room = free_room,
    *,
    threads: int = _THREADS,
) -> None:
    """Like `download_once`, but without a lock: one process and thread at a time per file.

    With one of ``threads``, a large file is read as one stream, for callers that download several.
    """

    def read() -> None:
        with ExitStack() as stack:
            with room(path, size_bytes):
                file = stack.enter_context(draft(path))
                with disk_errors(path):
                    os.truncate(file.handle, size_bytes)
            if size_bytes > LARGE_BYTES and threads > 1 and not store.features.local_path:
                actual = _read_ranges(store, key, file, size_bytes, threads)
            else:
                actual = read_digest(store, key, file.write)
            _compare(*actual, size_bytes, sha256, object_url(store.url, key))
            file.publish()

    if not is_downloaded(path, size_bytes):
        once_more(read)


def _read_ranges(
    store: Readable, key: str, file: Draft, size_bytes: int, threads: int
) -> tuple[int, str]:
    """Return length and sha256 of an object, read in ranges of one state of it."""
    info = store.head(key)
    if info.size_bytes != size_bytes:
        return info.size_bytes, ""
    interrupt = Interrupt(interrupted_by())

    def read(start: int) -> int:
        interrupt.check()
        length = min(_RANGE_BYTES, size_bytes - start)
        with store.open(key, offset=start, length=length, if_match=info.etag or None) as reader:
            for buffer in reader:
                file.write_at(start, buffer)
                start += len(buffer)
        return start

    starts = range(0, size_bytes, _RANGE_BYTES)
    ends: list[Answers] = [SimpleQueue() for _ in starts]
    unread = iter([[end, partial(read, start)] for start, end in zip(starts, ends, strict=True)])

    def work() -> None:
        with interrupt.active():
            for call in unread:
                put_answer(call)

    hasher, end = hashlib.sha256(), 0
    # The end of the program would wait for all ranges if a pool had these threads.
    workers = [threading.Thread(None, work, "larder-range", daemon=True) for _ in range(threads)]
    try:
        for worker in workers:
            worker.start()
        for start, answers in zip(starts, ends, strict=True):
            end = result_of(answers)
            for data in file.read(start, end):
                hasher.update(data)
    finally:
        interrupt.stop()
        for worker in workers:
            if worker.ident is not None:  # it was started
                worker.join()
    return end, hasher.hexdigest()


def path_below(root: Path, path: str) -> Path:
    """Return a path below ``root`` for a new file; refuse a link that leads out of ``root``."""
    target = root / path
    with disk_errors(target):
        check_inside(os.fsencode(target.parent), os.fsencode(root))
        target.parent.mkdir(parents=True, exist_ok=True)
    return target


def is_downloaded(path: Path, size_bytes: int) -> bool:
    with disk_errors(path, reading=True):
        try:
            return path.is_file() and path.stat().st_size == size_bytes
        except FileNotFoundError:
            return False


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file. Without locks, several processes may each download the same file."""
    with ExitStack() as stack:
        with disk_errors(path):
            stack.enter_context(file_lock(path))
        yield


def _compare(
    actual_bytes: int, actual_sha256: str, size_bytes: int, sha256: str, where: str
) -> None:
    if actual_bytes != size_bytes:
        message = f"the file has {actual_bytes} bytes instead of {size_bytes}"
        raise DamageError("damage.size", message, where=where)
    if actual_sha256 != sha256:
        message = f"the sha256 of the file is {actual_sha256}, not {sha256}"
        raise DamageError("damage.digest", message, where=where)
