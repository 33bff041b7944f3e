"""The files below a directory, in the order in which S3 would list their paths."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from larder.errors import ObjectError, StoreError
from larder.store.keys import TEMPORARY_PREFIX, object_url
from larder.store.local_errors import local_error

__all__ = ["walk"]

_TEMPORARY = TEMPORARY_PREFIX.encode()


@dataclass(frozen=True, slots=True)
class _Walk:
    """What a walk looks for. Paths are bytes, as file names are."""

    root: bytes
    store_url: str
    prefix: bytes
    start_after: bytes


@dataclass(frozen=True, slots=True)
class _Folder:
    """A directory being walked."""

    entries: list[bytes]
    """What is left of it, the last one first: paths below the root, directories with a slash."""
    places: frozenset[tuple[int, int]]
    """Device and inode of it and of the directories that the walk came through."""


def walk(
    root: bytes, store_url: str, prefix: bytes, start_after: bytes
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield keys and stats of the regular files, in order of the keys' bytes.

    A directory sorts as its name with ``/`` appended, so that ``a-b`` comes before ``a/b``, as it
    does among keys. Only directories that may hold a wanted key are read.

    Args:
        root: The directory, ending in ``/``.
        store_url: For messages.
        prefix: Keys begin with it.
        start_after: Keys come after it.

    Raises:
        StoreError: ``store.missing`` or ``store.denied``: the root.
        ObjectError: As `larder.store.local.LocalStore.list` says.
    """
    search = _Walk(root, store_url, prefix, start_after)
    stack = [_read(search, b"", frozenset())]
    while stack:
        entries = stack[-1].entries
        if not entries:
            stack.pop()
        elif entries[-1].endswith(b"/"):
            stack.append(_read(search, entries.pop(), stack[-1].places))
        else:
            path = entries.pop()
            found = _stat(search, path)
            if found is not None and stat.S_ISREG(found.st_mode):
                yield _decode(search, path), found


def _read(search: _Walk, path: bytes, places: frozenset[tuple[int, int]]) -> _Folder:
    """The wanted entries of one directory; none if the walk came through it already."""
    try:
        found = os.stat(search.root + path)
        here = (found.st_dev, found.st_ino)
        if here in places:
            return _Folder([], places)
        with os.scandir(search.root + path) as entries:
            wanted = [name for entry in entries if (name := _wanted(search, path, entry))]
    except FileNotFoundError:
        if path:  # removed meanwhile
            return _Folder([], places)
        raise _no_root(search) from None
    except OSError as error:
        raise local_error(error, search.store_url, _shown(path), writing=False) from error
    wanted.sort(reverse=True)
    return _Folder(wanted, places | {here})


def _wanted(search: _Walk, parent: bytes, entry: os.DirEntry[bytes]) -> bytes:
    """The entry's path if the walk wants it, or may want something below it; else nothing."""
    path = parent + entry.name
    below = path + b"/"
    prefix, start_after = search.prefix, search.start_after
    if entry.name.startswith(_TEMPORARY):
        return b""
    may_be_file = path > start_after and path.startswith(prefix)
    may_be_folder = (below.startswith(prefix) or prefix.startswith(below)) and (
        below > start_after or start_after.startswith(below)
    )
    if may_be_folder and _is_folder(entry):
        return below
    return path if may_be_file and not _is_folder(entry) else b""


def _is_folder(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        if entry.is_symlink():  # one that leads to itself: `_stat` will name it
            return False
        raise


def _stat(search: _Walk, path: bytes) -> os.stat_result | None:
    """The file's stat, links followed; nothing if it was removed meanwhile."""
    try:
        return os.stat(search.root + path)
    except OSError as error:
        if not os.path.islink(search.root + path):
            if isinstance(error, FileNotFoundError):
                return None
            raise local_error(error, search.store_url, _shown(path), writing=False) from error
        raise ObjectError(
            "object.unreadable",
            "a symbolic link that leads to no file",
            where=object_url(search.store_url, _shown(path)),
            hint="restore what it points to, or remove the link",
        ) from error


def _no_root(search: _Walk) -> StoreError:
    hint = "make the directory, or mount it"
    return StoreError(
        "store.missing", "the directory does not exist", where=search.store_url, hint=hint
    )


def _decode(search: _Walk, path: bytes) -> str:
    try:
        return path.decode()
    except UnicodeDecodeError:
        raise ObjectError(
            "object.bad_key",
            "the file name is not UTF-8",
            where=object_url(search.store_url, _shown(path)),
            hint="rename the file",
        ) from None


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
