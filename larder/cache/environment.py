"""LMDB files open for reading, each once per process.

LMDB refuses to open a file twice in a process, by whatever name, and an environment must not be
used across a fork. So the readers of a file share one environment, which opens again in a child.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import lmdb

from larder.cache.scratch import disk_errors
from larder.errors import FatalError

__all__ = ["Environment", "acquire", "release"]

_LOCK = threading.Lock()
_OPEN: dict[tuple[int, int], Environment] = {}

# The magic number and the version of LMDB 0.9's file format, in its first page.
_MAGIC = bytes.fromhex("dec0efbe01000000")
_MAGIC_OFFSET = 16

# A fork waits for a thread that opens or closes, so that a child finds neither half done.
os.register_at_fork(
    before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release
)


class Environment:
    """One open file; `acquire` makes them."""

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
        # Closing the inherited one undoes the child's mapping only.
        self._env.close()
        self._env = _open(self._path)
        self._pid = os.getpid()


def acquire(path: Path) -> Environment:
    """The environment of the file at ``path``, opened if nobody in this process has it open.

    Raises:
        FatalError: ``cache.format``: not a file of LMDB 0.9.
        ConfigError: ``config.path``: it cannot be read.
    """
    with disk_errors(path):
        found = path.stat()
    identity = found.st_dev, found.st_ino
    with _LOCK:
        if identity not in _OPEN:
            _OPEN[identity] = Environment(path, identity)
        environment = _OPEN[identity]
        environment._users += 1
        return environment


def release(environment: Environment) -> None:
    """Give back what `acquire` gave; the last one closes the file."""
    with _LOCK:
        environment._users -= 1
        if not environment._users:
            del _OPEN[environment._identity]
            environment._env.close()


def _open(path: Path) -> Any:
    with disk_errors(path), open(path, "rb") as file:
        file.seek(_MAGIC_OFFSET)
        magic = file.read(len(_MAGIC))
    try:
        if magic == _MAGIC:
            return lmdb.open(str(path), subdir=False, readonly=True, lock=False)
    except lmdb.Error:
        pass
    raise FatalError(
        "cache.format",
        "it is not a file of LMDB 0.9 for this machine",
        where=str(path),
        hint="build the cache again, or verify it",
    )
