"""Files of a directory: descriptions, durable folders, locks, and the meanings of errors."""

from __future__ import annotations

import errno
import os
from contextlib import AbstractContextManager, suppress

from larder.config.urls import parse_url
from larder.disk import FULL, TEMPORARY_PREFIX, file_lock, full_error, limit_error, sync_folder
from larder.errors import (
    LarderError,
    NotFoundError,
    ObjectError,
    RetryableError,
    StoreError,
)
from larder.store.base import ObjectInfo
from larder.store.keys import object_url

_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_BUSY = {errno.ESTALE, errno.EAGAIN, errno.ETIMEDOUT, errno.EINTR, errno.EBUSY}
_NO_PATH = {errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTEMPTY}


class local_errors:  # noqa: N801 - a context manager
    """Raise an ``OSError`` of the block as an error of an object, except `FileExistsError`."""

    __slots__ = ("_key", "_store_url", "_writing")

    def __init__(self, store_url: str, key: str, *, writing: bool = False) -> None:
        self._store_url, self._key, self._writing = store_url, key, writing

    def __enter__(self) -> None:
        """Nothing to begin."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, FileExistsError):
            raise local_error(error, self._store_url, self._key, writing=self._writing) from error


def local_error(error: OSError, store_url: str, key: str, *, writing: bool) -> LarderError:
    """Return the error of an ``OSError`` for an object, or for the root if ``key`` is empty."""
    where = object_url(store_url, key)
    code = error.errno or 0
    text = (error.strerror or str(error)).lower()
    if code in _DENIED:
        return _denied(store_url, key, text)
    if code in FULL:
        return full_error(error, where)
    if limit := limit_error(error, where):
        return limit
    # Another process may remove a temporary file before it is renamed.
    if code in _BUSY or (error.filename2 and not os.path.lexists(error.filename)):
        return RetryableError("store.unavailable", text, where=where)
    return _unwritable(code, text, where, store_url) if writing else _unreadable(code, text, where)


def _denied(store_url: str, key: str, text: str) -> LarderError:
    hint = "give this user permission"
    if key and os.access(parse_url(store_url).rest, os.R_OK | os.X_OK):
        where = object_url(store_url, key)
        return ObjectError("object.unreadable", text, where=where, hint=hint)
    return StoreError("store.denied", text, where=store_url, hint=hint)


def _unreadable(code: int, text: str, where: str) -> LarderError:
    if code == errno.ENOENT or code in _NO_PATH:
        return NotFoundError("object.missing", "no such object", where=where)
    return ObjectError("object.unreadable", text, where=where)


def _unwritable(code: int, text: str, where: str, store_url: str) -> LarderError:
    if code in _NO_PATH:
        message = f"no file of this directory tree can have this path: {text}"
        return ObjectError("object.bad_key", message, where=where)
    if code == errno.ENOENT and not os.path.isdir(parse_url(store_url).rest):
        message, hint = f"nothing can be written there: {text}", "choose another directory"
        return StoreError("store.refused", message, where=store_url, hint=hint)
    return StoreError("store.refused", text, where=where)


_LOCK = f"{TEMPORARY_PREFIX}lock".encode()


def describe(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, status.st_size, file_etag(status), status.st_mtime_ns // 1000)


def file_etag(status: os.stat_result) -> str:
    """Return a file's etag: modification time in nanoseconds, size and inode, in hex."""
    return f"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"


def make_folder(folder: bytes) -> None:
    """Create a directory and its parents durably, if they do not exist."""
    parent = os.path.dirname(folder)
    try:
        os.mkdir(folder)
    except FileExistsError:
        return
    except FileNotFoundError:
        make_folder(parent)
        with suppress(FileExistsError):
            os.mkdir(folder)
    sync_folder(parent)


def locked(folder: bytes) -> AbstractContextManager[None]:
    """Hold the directory's lock file: see `larder.disk.file_lock`."""
    return file_lock(os.path.join(folder, _LOCK))
