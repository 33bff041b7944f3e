"""LMDB files open for reading, each once per process.

LMDB refuses to open a file twice in a process, under any name, and an environment must not be used
across a fork. So the readers of a file share one environment, which is opened again in a child.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import lmdb

from larder.disk import disk_errors
from larder.errors import FatalError

_LOCK = threading.Lock()
_OPEN: dict[tuple[int, int], Environment] = {}

# The magic number and version of LMDB 0.9's file format, on its first page.
_MAGIC = bytes.fromhex("dec0efbe01000000")
_MAGIC_OFFSET = 16

# A fork waits while a thread opens or closes a file, so that a child finds no partial state.
os.register_at_fork(
    before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release
)


class Environment:
    """One open file; created by `acquire`."""

    def __init__(self, path: Path, identity: tuple[int, int]) -> None:
        self._path = path
        self._identity = identity
        self._users = 0
        self._pid = os.getpid()
        self._env: Any = _open(path)

    def get(self) -> Any:
        """The ``lmdb.Environment`` of this process."""
        if self._pid != os.getpid():
            with _LOCK:
                self._reopen()
        return self._env

    def _reopen(self) -> None:
        if self._pid == os.getpid():
            return
        # Closing the inherited environment only removes the child's mapping.
        self._env.close()
        self._env = _open(self._path)
        self._pid = os.getpid()


def acquire(path: Path) -> Environment:
    """The environment of the file at ``path``, opened if this process does not have it open yet."""
    with disk_errors(path, reading=True):
        found = path.stat()
    identity = found.st_dev, found.st_ino
    with _LOCK:
        if identity not in _OPEN:
            _OPEN[identity] = Environment(path, identity)
        environment = _OPEN[identity]
        environment._users += 1
        return environment


def release(environment: Environment) -> None:
    """Release what `acquire` returned; the last release closes the file."""
    with _LOCK:
        environment._users -= 1
        if not environment._users:
            del _OPEN[environment._identity]
            environment._env.close()


def _open(path: Path) -> Any:
    with disk_errors(path, reading=True), open(path, "rb") as file:
        file.seek(_MAGIC_OFFSET)
        magic = file.read(len(_MAGIC))
    try:
        if magic == _MAGIC:
            return lmdb.open(str(path), subdir=False, readonly=True, lock=False)
    except lmdb.Error:
        pass
    raise FatalError(
        "cache.format",
        "not an LMDB 0.9 file for this machine",
        where=str(path),
        hint="build the cache again, or verify it",
    )
