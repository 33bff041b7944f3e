"""Temporary files and folders that a later process can tell from those in use.

Whoever makes one holds a lock on it (flock) for as long as it is in use, and puts a tag of the
running kernel into its name. One without a lock was abandoned by a process that was killed:

- if the tag is that of this kernel, at once, because a kernel knows the locks of all its processes;
- otherwise (on a file system that machines share, locks may not be visible between them) only if it
  has also not been modified for long, by the file system's own clock: for an hour if it is a file,
  which is written to until it gets its name, or for a week if it is a folder, from which a run may
  only read for as long as its longest step takes.

File systems that refuse locks can be written to as well. What cannot be locked when it is made gets
a tag that belongs to no kernel, and where there are no locks at all nothing counts as abandoned.
"""

from __future__ import annotations

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

TEMPORARY_PREFIX = ".larder-tmp-"
"""Prefix of Larder's own names: files being written, and locks. Listings do not show them."""

QUIET_DRAFT_SECONDS = 3600.0
"""How long another machine's file must have been unmodified."""

QUIET_FOLDER_SECONDS = 7 * 86400.0
"""How long another machine's folder, with everything in it, must have been unmodified."""

_LOCK = "lock"
_NO_KERNEL = "00000000"
_MOST_TRIES = 100
_WORKSHOP = re.compile(rf"{re.escape(TEMPORARY_PREFIX)}workshop-(?:([0-9a-f]{{8}})-)?[a-z0-9_]+")
_DRAFT = re.compile(
    rf"{re.escape(TEMPORARY_PREFIX)}(?:draft-([0-9a-f]{{8}})-)?[0-9]+-[0-9a-f]{{16}}".encode()
)


@functools.cache
def _tag() -> str:
    """Eight hex digits that identify the running kernel: the machine and its last boot."""
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        kernel = os.uname().nodename
    return hashlib.sha256(kernel.encode()).hexdigest()[:8]


def draft_name() -> bytes:
    """A name for a file that is being written; `open_draft` makes it."""
    return f"{TEMPORARY_PREFIX}draft-{_tag()}-{os.getpid()}-{secrets.token_hex(8)}".encode()


def open_draft(folder: bytes) -> tuple[bytes, int]:
    """Make an empty file to be written, locked until it is closed if the file system has locks.

    Returns its path, which the caller renames or unlinks, and a handle, which the caller closes.
    """
    for _ in range(_MOST_TRIES):
        path, handle = _create(folder)
        held = _hold(handle, path)
        if held:
            return held, handle
        os.close(handle)
        with suppress(OSError):
            os.unlink(path)
    return _create(folder)  # a file system with its own way of counting links


def _create(folder: bytes) -> tuple[bytes, int]:
    path = os.path.join(folder, draft_name())
    return path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _hold(handle: int, path: bytes) -> bytes | None:
    """Lock what was just made, or give it (the file, or its folder) a name that sweeps leave alone
    for long; returns the new path, None if a sweep has just removed it as abandoned.
    """
    try:
        return path if _try_lock(handle) and os.fstat(handle).st_nlink else None
    except OSError:
        return _without_tag(path)


def _without_tag(path: bytes) -> bytes | None:
    folder, name = os.path.split(path)
    plain = os.path.join(folder, name.replace(_tag().encode(), _NO_KERNEL.encode(), 1))
    try:
        os.rename(path, plain)
    except FileNotFoundError:
        return None
    except OSError:
        return path
    return plain


@contextmanager
def workshop(parent: Path) -> Iterator[Path]:
    """A private directory in ``parent``, removed at the end, as are abandoned ones there."""
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
        with suppress(FileNotFoundError):  # another process removed it as abandoned
            handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            held = _hold(handle, os.fsencode(folder))
            if held:
                return Path(os.fsdecode(held)), handle
            os.close(handle)
        shutil.rmtree(folder, ignore_errors=True)


def sweep_workshops(parent: Path, now_seconds: float) -> None:
    """Remove the abandoned workshops in a directory; those that cannot be removed remain.

    The time is that of its file system's clock.
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
        # It is being made or removed right now, or its maker was killed while doing so.
        if _quiet(folder, now_seconds):
            shutil.rmtree(folder, ignore_errors=True)
        return
    try:
        if (tag == _tag() or _quiet(folder, now_seconds)) and _try_lock(handle):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)


def _quiet(folder: Path, now_seconds: float) -> bool:
    last = max(path.lstat().st_ctime for path in (folder, *folder.rglob("*")))
    return now_seconds - last > QUIET_FOLDER_SECONDS


def sweep_drafts(folder: bytes, now_seconds: float) -> None:
    """Remove the abandoned drafts in a directory; those that cannot be removed remain.

    The time is that of its file system's clock.
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
        quiet = now_seconds - os.fstat(handle).st_ctime > QUIET_DRAFT_SECONDS
        if (ours or quiet) and _try_lock(handle):
            os.unlink(path)
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    """Try to lock an open file until it is closed; OSError if its file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(handle: int) -> None:
    """Wait until nobody else has an open file locked, and lock it until it is closed.

    Does nothing if the file system does not support locks or refuses them.
    """
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX)
