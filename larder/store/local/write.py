"""Writes a file so that it never appears incomplete."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO

from larder.atomic import sync_folder
from larder.errors import ObjectError, PreconditionError
from larder.store.base import Buffer, ObjectInfo, Writer
from larder.store.keys import object_url
from larder.store.local.files import describe, local_errors, locked, make_folder
from larder.store.local.sweep import sweep_once
from larder.store.local.sync import Unsynced
from larder.temporary import open_draft

_CHUNK_BYTES = 1 << 20
# Measured with Linux 6.18 on ext4: 3.6 GB/s in writes of 256 KiB, 0.7 GB/s in writes of 1 MiB.
_WRITE_BYTES = 1 << 18
_MOST_TRIES = 100
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_NO_FAST_COPY = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF}


class LocalWriter(Writer):
    """A temporary file next to the future object, synced on commit or added to ``unsynced``.

    The first writer in a directory removes what killed processes left there.
    """

    def __init__(
        self, store_url: str, key: str, path: bytes, *, unsynced: Unsynced | None = None
    ) -> None:
        self._url = store_url
        self._key = key
        self._path = path
        self._folder = os.path.dirname(path)
        self._unsynced = unsynced
        self._draft = b""
        with local_errors(store_url, key, writing=True):
            self._handle: int | None = self._create()
        sweep_once(self._folder, self._handle)

    def _create(self) -> int:
        # Retried, because a delete may remove an empty directory between any two calls.
        for _ in range(_MOST_TRIES):
            with suppress(FileNotFoundError):
                self._draft, handle = open_draft(self._folder)
                return handle
            with suppress(FileNotFoundError):
                make_folder(self._folder)
        self._draft, handle = open_draft(self._folder)
        return handle

    def write(self, data: Buffer) -> None:
        handle = self._opened()
        with local_errors(self._url, self._key, writing=True), memoryview(data).cast("B") as view:
            done = 0
            while done < len(view):
                done += os.write(handle, view[done : done + _WRITE_BYTES])

    def copy_from(self, source: IO[bytes]) -> None:
        """Append a file, opened at its beginning; copies by reference if possible."""
        handle = self._opened()
        with local_errors(self._url, self._key, writing=True):
            if not _copy_by_reference(source, handle):
                source.seek(os.lseek(handle, 0, os.SEEK_CUR))
                with open(handle, "wb", closefd=False) as target:
                    shutil.copyfileobj(source, target, _CHUNK_BYTES)

    def commit(self) -> ObjectInfo:
        return self._publish(lambda: os.replace(self._draft, self._path))

    def commit_if_absent(self) -> ObjectInfo:
        """Publish under the object's name, unless it exists (``object.exists``)."""
        try:
            return self._publish(self._link)
        except FileExistsError:
            where = object_url(self._url, self._key)
            if os.path.isdir(self._path):
                raise ObjectError(
                    "object.bad_key", "a directory has this name", where=where
                ) from None
            raise PreconditionError("object.exists", "it already exists", where=where) from None

    def commit_if_match(self, etag: str) -> ObjectInfo:
        """Rename to the object's name, if the object there has this etag (``object.changed``)."""

        def replace() -> None:
            with locked(self._folder):
                if self._etag_there() != etag:
                    where = object_url(self._url, self._key)
                    raise PreconditionError(
                        "object.changed", "it changed since it was listed", where=where
                    )
                os.replace(self._draft, self._path)

        return self._publish(replace)

    def abort(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
            with suppress(OSError):
                os.unlink(self._draft)

    def _publish(self, give_name: Callable[[], None]) -> ObjectInfo:
        handle = self._opened()
        with local_errors(self._url, self._key, writing=True):
            # The kernel's timestamps have steps of 4 ms: too coarse to distinguish two versions.
            now_ns = time.time_ns()
            os.utime(handle, ns=(now_ns, now_ns))
            if self._unsynced is None:
                os.fsync(handle)
            else:
                self._unsynced.add(self._path)  # first, so that no sync misses it
            info = describe(self._key, os.fstat(handle))
            give_name()
            os.close(handle)
            self._handle = None
            if self._unsynced is None:
                sync_folder(self._folder)
        return info

    def _link(self) -> None:
        try:
            os.link(self._draft, self._path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            with locked(self._folder):
                if os.path.lexists(self._path):
                    raise FileExistsError(errno.EEXIST, "exists", self._path) from None
                os.replace(self._draft, self._path)
        else:
            os.unlink(self._draft)

    def _etag_there(self) -> str | None:
        try:
            return describe(self._key, os.stat(self._path)).etag
        except FileNotFoundError:
            return None

    def _opened(self) -> int:
        assert self._handle is not None, "the writer is committed or aborted"
        return self._handle


def _copy_by_reference(source: IO[bytes], handle: int) -> bool:
    """Make the file system copy; returns False if it cannot, possibly after some of the bytes."""
    copy = getattr(os, "copy_file_range", None)  # on Linux
    if copy is None:
        return False
    try:
        while copy(source.fileno(), handle, 1 << 30):
            pass
    except OSError as error:
        if error.errno not in _NO_FAST_COPY:
            raise
        return False
    return True
