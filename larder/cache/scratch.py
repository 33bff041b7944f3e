"""Files that appear under their final name only when they are complete.

A file is written under a temporary name in the same directory; see `larder.temporary`. Files that
killed processes left there are removed when something is next written there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from larder.cache.record import Buffer
from larder.errors import ConfigError, StoreError
from larder.temporary import open_draft, sweep_drafts

__all__ = ["Draft", "disk_errors", "draft"]

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Draft:
    """A file under its temporary name; created by `draft`.

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
        """Make the file durable and give it its final name, replacing an existing file.

        Raises:
            StoreError: ``store.full``: no space is left.
        """
        with disk_errors(self._final):
            os.fsync(self.handle)
            os.replace(self.path, self._final)
            _sync_directory(self._final.parent)


@contextmanager
def draft(final: Path) -> Iterator[Draft]:
    """An empty file for ``final``, in the same directory, which is created if needed.

    Unless `Draft.publish` is called, the file is removed afterwards.

    Raises:
        ConfigError: ``config.path``: the directory cannot be made or written.
        StoreError: ``store.full``: no space is left.
    """
    with disk_errors(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        folder = os.fsencode(final.parent)
        name, handle = open_draft(folder)
    path = Path(os.fsdecode(name))
    try:
        sweep_drafts(folder, os.fstat(handle).st_ctime)
        yield Draft(path, handle, final)
    finally:
        with suppress(FileNotFoundError):
            path.unlink()
        os.close(handle)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into an error that a user can act on.

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


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
