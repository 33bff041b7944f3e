"""Files on a local disk: their digest, room for them, and errors while they are written."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from larder.errors import ConfigError, StoreError
from larder.units import format_bytes

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The error numbers that mean that there is no space for a file."""


def sha256_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_bytes(folder: Path) -> int:
    """The bytes of all files below a folder; 0 if there is none."""
    size_bytes = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # a temporary file, of another run
                size_bytes += os.lstat(os.path.join(path, name)).st_size
    return size_bytes


def check_room(folder: Path, need_bytes: int, written_bytes: Callable[[], int] = lambda: 0) -> None:
    """Refuse to write more below a folder, which may not exist yet, than fits there.

    ``written_bytes`` says how much of it is there already; it is called only if that decides.
    """
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    disk = shutil.disk_usage(there)
    if not disk.total or need_bytes <= disk.free:  # some file systems do not say
        return
    need_bytes -= written_bytes()
    if need_bytes > disk.free:
        need, free = format_bytes(need_bytes), format_bytes(disk.free)
        message = f"{need} would be written, but only {free} are free"
        hint = "make room there, or choose another storage"
        raise StoreError("store.full", message, where=str(folder), hint=hint)


@contextmanager
def disk_errors(path: Path, *, reading: bool = False) -> Iterator[None]:
    """Turn the errors of writing ``path`` on a local disk into those of `larder.errors`:
    ``store.full``, and ``config.path`` for any other refusal.
    """
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise StoreError(
                "store.full", "no space is left on the disk", where=str(path)
            ) from error
        done = "read" if reading else "written"
        message = f"cannot be {done}: {error.strerror or type(error).__name__}"
        raise ConfigError("config.path", message, where=str(path)) from error
