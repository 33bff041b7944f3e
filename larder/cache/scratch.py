"""Files that appear under their name only when they are whole.

A file is written under a temporary name in the directory of its final name, and holds a lock
(flock) while its writer lives. A temporary file without a lock was left by a process that was
killed; the next writer of the same final name removes it.
"""

from __future__ import annotations

import errno
import glob
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from larder.cache.record import Buffer
from larder.errors import ConfigError, StoreError
from larder.temporary import try_lock, without_locks

__all__ = ["Draft", "disk_errors", "draft"]

_SUFFIX = ".draft"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Draft:
    """A file under its temporary name; `draft` makes one.

    Attributes:
        path: The temporary name.
        handle: Open for reading and writing.
    """

    def __init__(self, path: Path, handle: int, final: Path) -> None:
        self.path = path
        self.handle = handle
        self._final = final

    def write(self, data: Buffer) -> None:
        """Append bytes.

        Raises:
            StoreError: ``store.full``: no space is left.
        """
        left = memoryview(data).cast("B")
        with disk_errors(self._final):
            while left:
                left = left[os.write(self.handle, left) :]

    def publish(self) -> None:
        """Make the file durable and give it its final name, in place of what is there.

        Raises:
            StoreError: ``store.full``: no space is left.
        """
        with disk_errors(self._final):
            os.fsync(self.handle)
            os.replace(self.path, self._final)
            _sync_directory(self._final.parent)


@contextmanager
def draft(final: Path) -> Iterator[Draft]:
    """An empty file for ``final``, in the same directory, which is made if needed.

    Unless `Draft.publish` was called, the file is gone afterwards.

    Raises:
        ConfigError: ``config.path``: the directory cannot be made or written.
        StoreError: ``store.full``: no space is left.
    """
    with disk_errors(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(final)
        path, handle = _create(final)
    try:
        yield Draft(path, handle, final)
    finally:
        with suppress(FileNotFoundError):
            path.unlink()
        os.close(handle)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an OSError inside into the error that a user can act on.

    Raises:
        ConfigError: ``config.path``.
        StoreError: ``store.full``.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StoreError("store.full", "no space is left", where=str(path)) from error
        message = error.strerror or type(error).__name__
        raise ConfigError("config.path", message, where=str(path)) from error


def _create(final: Path) -> tuple[Path, int]:
    while True:
        path = final.with_name(f".{final.name}.{secrets.token_hex(8)}{_SUFFIX}")
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        locked = True
        with without_locks():
            locked = try_lock(handle)
        if locked and path.exists():
            return path, handle
        # Another writer took it for stale between the two calls above.
        os.close(handle)


def _remove_stale(final: Path) -> None:
    for path in final.parent.glob(f".{glob.escape(final.name)}.*{_SUFFIX}"):
        with suppress(OSError):
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if try_lock(handle):
                    path.unlink()
            finally:
                os.close(handle)


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
