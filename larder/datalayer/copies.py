"""Copies of caches on this machine; above a limit, the copies opened longest ago are removed first.

A copy is never removed while a process has it open: see `larder.disk.open_shared`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from larder.disk import (
    DRAFT_PREFIX,
    check_room,
    disk_errors,
    folder_bytes,
    removed_if_abandoned,
    unused,
)
from larder.errors import StoreError
from larder.readers.schedule import size_bytes
from larder.store.download import Room, free_room, locked
from larder.units import format_bytes

VARIABLE: Final = "LARDER_CACHE_BYTES"
"""Environment variable for the most bytes of all copies."""

_COPY: Final = re.compile(r"[0-9a-f]{64}\.mdb")
_LOCK: Final = ".room.lock"


def limit_of(given: Any) -> int | None:
    if given is not None:
        return size_bytes(given, "cache_bytes")
    text = os.environ.get(VARIABLE)
    return size_bytes(text, VARIABLE) if text else None


def stamp_of(path: Path) -> Path:
    """Return the path of a verified copy's stamp; its time is when the copy was last opened."""
    return path.with_suffix(".verified")


def room_below(root: Path, limit_bytes: int | None) -> Room:
    """Return a function that makes room for one more copy, or raises ``store.full``.

    Drafts that killed processes left in the folder are removed first.
    """

    @contextmanager
    def room(path: Path, size_bytes: int) -> Iterator[None]:
        with locked(root / _LOCK):
            for draft in path.parent.glob(f"{DRAFT_PREFIX}*"):
                _is_gone(draft)
            evict(root, limit_bytes, size_bytes)
            with free_room(path, size_bytes):
                yield

    return room


def evict(root: Path, limit_bytes: int | None, size_bytes: int) -> None:
    """Remove copies until ``size_bytes`` more fit within the limit, if any; else ``store.full``."""
    if limit_bytes is None:
        return
    with disk_errors(root):
        copies, used_bytes = _copies(root)
        for _, copy_bytes, path in sorted(copies):
            if used_bytes + size_bytes <= limit_bytes:
                return
            with suppress(FileNotFoundError), unused(path) as is_unused:
                if is_unused:
                    path.unlink()
                    stamp_of(path).unlink(missing_ok=True)
                    used_bytes -= copy_bytes
    _check_limit(root, limit_bytes, size_bytes, used_bytes)


def check_fit(folder: Path, limit_bytes: int | None, size_bytes: int) -> None:
    """Raise ``store.full`` if a cache will not fit into the folder for its copy."""
    if limit_bytes is None:
        check_room(folder, size_bytes, lambda: folder_bytes(folder))
    else:
        _check_limit(folder, limit_bytes, size_bytes, 0)


def _check_limit(where: Path, limit_bytes: int, size_bytes: int, used_bytes: int) -> None:
    if used_bytes + size_bytes > limit_bytes:
        used, need, limit = map(format_bytes, (used_bytes, size_bytes, limit_bytes))
        message = f"a copy needs {need}, and those that are open have {used} of {limit}"
        hint = f"raise {VARIABLE} or cache_bytes, or let other trials of this machine end"
        raise StoreError("store.full", message, where=str(where), hint=hint)


def _copies(root: Path) -> tuple[list[tuple[int, int, Path]], int]:
    """Return when each copy was opened, its bytes and path; and the bytes of copies and drafts."""
    copies, writing_bytes = [], 0
    for path in root.rglob("*"):
        with suppress(FileNotFoundError):
            if _COPY.fullmatch(path.name) and path.is_file():
                status, opened_ns = path.stat(), 0
                with suppress(FileNotFoundError):
                    opened_ns = stamp_of(path).stat().st_mtime_ns
                copies.append((max(opened_ns, status.st_mtime_ns), status.st_size, path))
            elif path.name.startswith(DRAFT_PREFIX) and not _is_gone(path):
                writing_bytes += path.stat().st_size
    return copies, writing_bytes + sum(copy_bytes for _, copy_bytes, _ in copies)


def _is_gone(draft: Path) -> bool:
    with suppress(OSError):  # the draft of another user
        return removed_if_abandoned(draft)
    return False
