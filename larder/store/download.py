"""Published files in a store, downloaded to a directory of this machine once, and verified."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from larder.disk import check_inside, disk_errors, draft, file_lock
from larder.errors import DamageError, StoreError
from larder.store.base import Readable
from larder.store.keys import object_url
from larder.store.own_files import read_digest
from larder.units import format_bytes

Room = Callable[[Path, int], AbstractContextManager[None]]
"""Makes room for a file of so many bytes; until it ends, the file may begin to take them."""


@contextmanager
def free_room(path: Path, size_bytes: int) -> Iterator[None]:
    """Refuse a file for which the disk has no space."""
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
    """Download a file unless it is there; it appears under its name once it was verified.

    Processes and threads that need the same file wait for the one that downloads it; if that is
    killed, the system releases its lock, and another one begins anew.

    Args:
        store: Where the file is.
        key: Its key.
        path: Where it goes. The name has to imply the content, so that a file of that name and
            length is taken for this one.
        size_bytes: Its length.
        sha256: Its digest.
        room: What makes room for it.

    Raises:
        DamageError: ``damage.size`` or ``damage.digest``: the store has other bytes.
        StoreError: ``store.full``.
        ConfigError: ``config.path``: the directory cannot be written.
        LarderError: An error of the store.
    """
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    if not is_downloaded(path, size_bytes):
        with locked(path.with_name(f".{path.name}.lock")):
            download(store, key, path, size_bytes, sha256, room)


def download(
    store: Readable, key: str, path: Path, size_bytes: int, sha256: str, room: Room = free_room
) -> None:
    """The same as `download_once`, for one process and thread at a time."""
    if is_downloaded(path, size_bytes):
        return
    with ExitStack() as stack:
        with room(path, size_bytes):
            file = stack.enter_context(draft(path))
            with disk_errors(path):
                os.truncate(file.handle, size_bytes)
        _compare(read_digest(store, key, file.write), (size_bytes, sha256), store, key)
        file.publish()


def path_below(root: Path, path: str) -> Path:
    """A path in a directory, for a file to be written; no link on the way may lead out of it."""
    target = root / path
    with disk_errors(target):
        check_inside(os.fsencode(target.parent), os.fsencode(root))
        target.parent.mkdir(parents=True, exist_ok=True)
    return target


def is_downloaded(path: Path, size_bytes: int) -> bool:
    with disk_errors(path, reading=True):
        try:
            return path.stat().st_size == size_bytes
        except FileNotFoundError:
            return False


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file: see `larder.disk.file_lock`.

    Without locks, several processes may download the same file, each of them completely.
    """
    with ExitStack() as stack:
        with disk_errors(path):
            stack.enter_context(file_lock(path))
        yield


def removed_if_abandoned(draft: Path) -> bool:
    """Remove what a killed process was downloading: whoever is alive has it locked.

    Returns whether it is gone. Raises OSError if the file system has no locks.
    """
    try:
        handle = os.open(draft, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def _compare(
    actual: tuple[int, str], published: tuple[int, str], store: Readable, key: str
) -> None:
    (size_bytes, sha256), where = actual, object_url(store.url, key)
    if size_bytes != published[0]:
        message = f"the file has {size_bytes} bytes instead of {published[0]}"
        raise DamageError("damage.size", message, where=where)
    if sha256 != published[1]:
        message = f"the sha256 of the file is {sha256}, not {published[1]}"
        raise DamageError("damage.digest", message, where=where)
