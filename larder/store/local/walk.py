"""The files below a directory, in S3's order of their paths."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from typing import NamedTuple

from larder.disk import TEMPORARY_PREFIX
from larder.errors import ObjectError, StoreError
from larder.store.keys import object_url
from larder.store.local.files import local_error

OnUnlisted = Callable[[bytes, ObjectError], None]
"""Callback with the path of an unlisted entry, and the reason; directories end in a slash."""

_TEMPORARY = TEMPORARY_PREFIX.encode()


class Walk(NamedTuple):
    """The root of a walk, which ends in ``/``, and its bounds. Paths are bytes, as names are."""

    root: bytes
    store_url: str
    prefix: bytes
    start_after: bytes
    unlisted: OnUnlisted | None

    def skip(self, path: bytes, error: ObjectError) -> None:
        """Report an entry that cannot be listed to ``unlisted``; without it, raise ``error``."""
        if self.unlisted is None:
            raise error
        self.unlisted(path, error)

    def omit(self, path: bytes, code: str, message: str, hint: str) -> None:
        """Report an entry without data of its own to ``unlisted``, if there is one."""
        if self.unlisted is not None:
            self.unlisted(path, self.error(path, code, message, hint))

    def error(self, path: bytes, code: str, message: str, hint: str) -> ObjectError:
        where = object_url(self.store_url, _shown(path))
        return ObjectError(code, message, where=where, hint=hint)


class _Folder(NamedTuple):
    entries: list[bytes]
    """The remaining entries in reverse order: paths below the root, directories with a slash."""
    places: frozenset[tuple[int, int]]
    """Device and inode of this directory and its ancestors in the walk."""


def walk(search: Walk) -> Iterator[tuple[str, os.stat_result]]:
    """Yield keys and stats of the regular files, in order of the keys' bytes, following links.

    ``unlisted`` gets each entry that cannot be listed, in order; without ``unlisted``, it is an
    error. ``unlisted`` also gets pipes, sockets, devices and links in circles, which are otherwise
    omitted silently.

    A directory is sorted by its name with ``/`` appended, so that ``a-b`` comes before ``a/b``, as
    for keys. Only directories that may contain a wanted key are read.
    """
    stack = [_read(search, b"", frozenset())]
    while stack:
        entries = stack[-1].entries
        if not entries:
            stack.pop()
        elif entries[-1].endswith(b"/"):
            path = entries.pop()
            if search.unlisted is None or _decode(search, path) is not None:
                stack.append(_read(search, path, stack[-1].places))
        else:
            path = entries.pop()
            status = _stat(search, path)
            if status is None:
                continue
            if not stat.S_ISREG(status.st_mode):
                search.omit(
                    path, "object.unreadable", "neither a file nor a directory", "move it elsewhere"
                )
            elif (key := _decode(search, path)) is not None:
                yield key, status


def _read(search: Walk, path: bytes, places: frozenset[tuple[int, int]]) -> _Folder:
    """Read the wanted entries of one directory; none if the walk is already inside it."""
    try:
        status = os.stat(search.root + path)
        place = (status.st_dev, status.st_ino)
        if place in places:
            search.omit(
                path, "object.bad_key", "a link to a directory that contains it", "remove the link"
            )
            return _Folder([], places)
        with os.scandir(search.root + path) as entries:
            wanted = [name for entry in entries if (name := _wanted(search, path, entry))]
    except FileNotFoundError:
        if path:  # removed in the meantime
            return _Folder([], places)
        message, hint = "the directory does not exist", "create the directory, or mount it"
        raise StoreError("store.missing", message, where=search.store_url, hint=hint) from None
    except OSError as error:
        reason = local_error(error, search.store_url, _shown(path), writing=False)
        if not path or not isinstance(reason, ObjectError):
            raise reason from error
        search.skip(path, reason)
        return _Folder([], places)
    wanted.sort(reverse=True)
    return _Folder(wanted, places | {place})


def _wanted(search: Walk, parent: bytes, entry: os.DirEntry[bytes]) -> bytes:
    """Return an entry's path if the entry, or a file below it, may be wanted; else empty."""
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
        if entry.is_symlink():  # `_stat` reports a link to itself
            return False
        raise


def _stat(search: Walk, path: bytes) -> os.stat_result | None:
    """Return the stat of a file, following links; None if it was removed or cannot be listed."""
    try:
        return os.stat(search.root + path)
    except OSError as error:
        if not os.path.islink(search.root + path):
            if isinstance(error, FileNotFoundError):
                return None
            reason = local_error(error, search.store_url, _shown(path), writing=False)
            if not isinstance(reason, ObjectError):
                raise reason from error
        else:
            hint = "restore its target, or remove the link"
            reason = search.error(path, "object.unreadable", "a dangling symbolic link", hint)
        search.skip(path, reason)
        return None


def _decode(search: Walk, path: bytes) -> str | None:
    """Return the key of a path; None if the path is not UTF-8, and omitted."""
    try:
        return path.decode()
    except UnicodeDecodeError:
        error = search.error(path, "object.bad_key", "the file name is not UTF-8", "rename it")
    search.skip(path, error)
    return None


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
