"""Descriptions of files, and directories that survive a power cut."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from larder.atomic import sync_folder
from larder.store.base import ObjectInfo
from larder.temporary import TEMPORARY_PREFIX, wait_for_lock

_LOCK = f"{TEMPORARY_PREFIX}lock".encode()


def describe(key: str, found: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, found.st_size, file_etag(found), found.st_mtime_ns // 1000)


def file_etag(found: os.stat_result) -> str:
    """The etag of a file: modification time in nanoseconds, size and inode, in hex."""
    return f"{found.st_mtime_ns:x}-{found.st_size:x}-{found.st_ino:x}"


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


@contextmanager
def locked(folder: bytes) -> Iterator[None]:
    """Hold the directory's lock file exclusively. The empty file remains.

    If locks are not supported, the block runs without one.
    """
    path = os.path.join(folder, _LOCK)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        wait_for_lock(handle)
        yield
    finally:
        os.close(handle)
