"""Files that appear under their name only when they are whole.

A file is written under a temporary name in the directory of its final name, and holds a lock
(flock) while its writer lives. A temporary file without a lock was left by a process that was
killed; the next writer of the same final name removes it.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from larder.cache.record import Buffer
from larder.errors import ConfigError, StoreError

__all__ = ["Draft", "disk_errors", "draft", "without_locks", "workshop"]

_SUFFIX = ".draft"
_WORKSHOP = ".larder-tmp-workshop-"
_LOCK = "lock"
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
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
def workshop(parent: Path) -> Iterator[Path]:
    """A private directory to build in, removed at the end.

    It is locked while its owner lives; those that killed processes left in ``parent`` are removed.

    Args:
        parent: On the disk that has the room; made if needed.

    Raises:
        ConfigError: ``config.path``: the directory cannot be made or written.
        StoreError: ``store.full``: no space is left.
    """
    with disk_errors(parent):
        parent.mkdir(parents=True, exist_ok=True)
        _sweep(parent)
        folder, handle = _open_workshop(parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _open_workshop(parent: Path) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_WORKSHOP, dir=parent))
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        locked = True
        with without_locks():
            locked = _lock(handle)
        if locked and (folder / _LOCK).exists():
            return folder, handle
        # Another took it for stale between the two calls above.
        os.close(handle)


def _sweep(parent: Path) -> None:
    # One without a lock file is being made this moment; if its maker is killed then, an empty
    # directory stays.
    for lock in parent.glob(f"{_WORKSHOP}*/{_LOCK}"):
        with suppress(OSError):
            handle = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
            try:
                if _lock(handle):
                    shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
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
            locked = _lock(handle)
        if locked and path.exists():
            return path, handle
        # Another writer took it for stale between the two calls above.
        os.close(handle)


def _remove_stale(final: Path) -> None:
    for path in final.parent.glob(f".{glob.escape(final.name)}.*{_SUFFIX}"):
        with suppress(OSError):
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if _lock(handle):
                    path.unlink()
            finally:
                os.close(handle)


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def without_locks() -> Iterator[None]:
    """Pass over the error of a file system that has no locks."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
