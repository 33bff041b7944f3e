"""One sync for many files: what a batch of copies into a directory needs instead of two per file.

A file that is written with ``sync=False`` gets its name before its bytes are durable. After a power
cut it may be empty. So nothing may rely on it before `Unsynced.sync` has returned: Larder writes
the receipts of a batch after that.
"""

from __future__ import annotations

import ctypes
import os
import threading
from functools import cache

from larder.atomic import sync_folder

_MANY_FILES = 16
"""From so many files on, a sync of the file system is faster than one of each file (ext4)."""


class Unsynced:
    """The files below one directory that this process has written and not synced."""

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._files: set[bytes] = set()
        self._count = 0

    def add(self, path: bytes) -> None:
        """Add a file that has its name, or is about to get it."""
        with self._lock:
            self._count += 1
            if self._count <= _MANY_FILES:  # memory does not grow with the files
                self._files.add(path)

    def sync(self) -> None:
        """Make all of them durable, with their names."""
        with self._lock:
            files, count = self._files, self._count
            self._files, self._count = set(), 0
        if count > _MANY_FILES or not all(map(_sync_file, files)):
            _sync_all(self._root)


def _sync_file(path: bytes) -> bool:
    """Sync a file and its directory; returns False if it is gone."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    sync_folder(os.path.dirname(path))
    return True


def _sync_all(root: bytes) -> None:
    """Sync the file system with a directory; where that call is missing, all file systems."""
    syncfs = _syncfs()
    if syncfs is None:
        os.sync()
        return
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if syncfs(handle):
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), root)
    finally:
        os.close(handle)


@cache
def _syncfs() -> ctypes._NamedFuncPointer | None:
    """Linux' syncfs(2), or None."""
    try:
        return ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError, TypeError):
        return None


_ALL: dict[bytes, Unsynced] = {}
_ALL_LOCK = threading.Lock()


def unsynced(root: bytes) -> Unsynced:
    """The unsynced files below a directory, shared by all stores of the process with that root."""
    with _ALL_LOCK:
        return _ALL.setdefault(root, Unsynced(root))
