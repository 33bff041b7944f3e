"""Temporary files and folders that a later process can tell from those in use.

Whoever makes one holds a lock on it (flock) for as long as it is in use, and names it with a tag of
the kernel that it runs under. What has no lock was left by a process that was killed:

- at once if the tag is ours, because a kernel knows the locks of all of its processes;
- else, on a file system that machines share and where locks may not reach from one to the other, if
  nothing was written to it for an hour by the file system's own clock as well.

Where a file system has no locks nothing is taken for abandoned.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import hashlib
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from larder.disk import disk_errors

__all__ = [
    "TEMPORARY_PREFIX",
    "draft_name",
    "hold",
    "sweep_drafts",
    "sweep_workshops",
    "try_lock",
    "without_locks",
    "workshop",
]

TEMPORARY_PREFIX = ".larder-tmp-"
"""Names that begin so are ours: files being written, and locks. No listing shows them."""

QUIET_SECONDS = 3600.0
"""How long another machine's have to be untouched."""

_LOCK = "lock"
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_WORKSHOP = re.compile(rf"{re.escape(TEMPORARY_PREFIX)}workshop-(?:([0-9a-f]{{8}})-)?[a-z0-9_]+")
_DRAFT = re.compile(
    rf"{re.escape(TEMPORARY_PREFIX)}(?:draft-([0-9a-f]{{8}})-)?[0-9]+-[0-9a-f]{{16}}".encode()
)


@functools.cache
def _tag() -> str:
    """Eight hex digits that tell the kernels of machines apart, and of one machine its boots."""
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        kernel = os.uname().nodename
    return hashlib.sha256(kernel.encode()).hexdigest()[:8]


def draft_name() -> bytes:
    """A name for a file that is being written; hold it open and call `hold`."""
    return f"{TEMPORARY_PREFIX}draft-{_tag()}-{os.getpid()}-{secrets.token_hex(8)}".encode()


def hold(handle: int) -> bool:
    """Lock an open file of one's own until it is closed, if the file system lets us.

    Returns:
        Whether it is still there: no if a sweep took it for abandoned just before.
    """
    with suppress(OSError):  # whatever a file system has against locks, it can be written
        if not try_lock(handle):
            return False
    return os.fstat(handle).st_nlink > 0


@contextmanager
def workshop(parent: Path) -> Iterator[Path]:
    """A private directory to build in, removed at the end; abandoned ones in ``parent`` go too.

    Args:
        parent: On the disk that has the room; made if needed.

    Raises:
        ConfigError: ``config.path``: the directory cannot be made or written.
        StoreError: ``store.full``: no space is left.
    """
    with disk_errors(parent):
        parent.mkdir(parents=True, exist_ok=True)
        folder, handle = _open_workshop(parent)
        with suppress(OSError):
            sweep_workshops(parent, os.fstat(handle).st_ctime)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _open_workshop(parent: Path) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY_PREFIX}workshop-{_tag()}-", dir=parent))
        with suppress(FileNotFoundError):  # another took it for abandoned meanwhile
            handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            if hold(handle):
                return folder, handle
            os.close(handle)
        shutil.rmtree(folder, ignore_errors=True)


def sweep_workshops(parent: Path, now_seconds: float) -> None:
    """Remove the abandoned workshops of a directory; what cannot be removed stays.

    Args:
        parent: The directory.
        now_seconds: The time by its file system's clock.

    Raises:
        OSError: The directory cannot be read.
    """
    with os.scandir(parent) as entries:
        found = [(match[1], entry.path) for entry in entries if (match := _workshop_match(entry))]
    for tag, path in found:
        with suppress(OSError):
            _remove_if_abandoned(Path(path), tag, now_seconds)


def _workshop_match(entry: os.DirEntry[str]) -> re.Match[str] | None:
    match = _WORKSHOP.fullmatch(entry.name)
    return match if match and entry.is_dir(follow_symlinks=False) else None


def _remove_if_abandoned(folder: Path, tag: str, now_seconds: float) -> None:
    try:
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        # Being made this moment, or its maker was killed then; such a one is empty.
        if now_seconds - folder.stat().st_ctime > QUIET_SECONDS:
            folder.rmdir()
        return
    try:
        if (tag == _tag() or _quiet(folder, now_seconds)) and try_lock(handle):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)


def _quiet(folder: Path, now_seconds: float) -> bool:
    last = max(path.lstat().st_ctime for path in (folder, *folder.rglob("*")))
    return now_seconds - last > QUIET_SECONDS


def sweep_drafts(folder: bytes, now_seconds: float) -> None:
    """Remove the abandoned drafts of a directory; what cannot be removed stays.

    Args:
        folder: The directory.
        now_seconds: The time by its file system's clock.
    """
    with suppress(OSError):
        with os.scandir(folder) as entries:
            found = [
                (match[1], entry.path)
                for entry in entries
                if (match := _DRAFT.fullmatch(entry.name)) and entry.is_file(follow_symlinks=False)
            ]
        for tag, path in found:
            with suppress(OSError):
                _unlink_if_abandoned(path, tag, now_seconds)


def _unlink_if_abandoned(path: bytes, tag: bytes | None, now_seconds: float) -> None:
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        ours = tag == _tag().encode()
        quiet = now_seconds - os.fstat(handle).st_ctime > QUIET_SECONDS
        if (ours or quiet) and try_lock(handle):
            os.unlink(path)
    finally:
        os.close(handle)


def try_lock(handle: int) -> bool:
    """Lock an open file until it is closed; whether nobody else has it locked.

    Raises:
        OSError: The file system has no locks.
    """
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
