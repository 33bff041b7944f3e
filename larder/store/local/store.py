"""A directory as a store: ``file:///dir``.

Objects are regular files; a key is the path below the root. A write creates a temporary file next
to the destination, syncs and renames it (a hard link for ``if_absent``), and syncs the directory.
So an object is complete or absent, even after a power cut. (On macOS, the drive may change the
order: fsync does not wait for it, and the call that waits takes milliseconds per file.)

``if_match`` holds a lock file in the object's directory: it is atomic among writers that use
``if_match``, on all machines, if the file system supports flock. Without flock, etags are still
compared, but the later of two simultaneous writers may win. The same applies to ``if_absent`` if
hard links are not supported either.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from larder.disk import check_inside, disk_errors, sync_folder
from larder.errors import ConfigError, NotFoundError, ObjectError
from larder.store.base import (
    AHEAD,
    Buffer,
    Contents,
    Features,
    ObjectInfo,
    Reader,
    Store,
    WriteOptions,
    span_bytes,
)
from larder.store.etags import changed, too_short
from larder.store.keys import check_path_key, object_url
from larder.store.local.files import describe, file_etag, local_error, local_errors
from larder.store.local.walk import OnUnlisted, Walk, walk
from larder.store.local.write import LocalWriter, unsynced
from larder.units import format_count

if TYPE_CHECKING:
    from typing import Unpack

_FEATURES = Features(etag_is_md5=False, local_path=True)
_PAGE_KEYS = 1000
_SHOWN_CHARACTERS = 100
_CHUNK_BYTES = 1 << 20
_READ_BYTES = 1 << 30  # Linux reads less than 2 GiB at once, and macOS refuses larger requests
# Without O_NONBLOCK, opening a named pipe would wait for its writer.
_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


def _check_root(path: str) -> None:
    hint = "name a directory, or a path where one can be created"
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            where, message = f"{path[:_SHOWN_CHARACTERS]}...", "the path is too long"
            raise ConfigError("config.path", message, where=where, hint=hint) from None
    ancestor = path
    while not os.path.lexists(ancestor) and ancestor != os.path.dirname(ancestor):
        ancestor = os.path.dirname(ancestor)
    if os.path.lexists(ancestor) and not os.path.isdir(ancestor):
        raise ConfigError("config.path", "it is not a directory", where=ancestor, hint=hint)


class LocalStore(Store):
    """The regular files below a directory, which the first write creates. Listings call
    ``unlisted`` for omitted entries instead of raising an error.
    """

    def __init__(self, root: str | os.PathLike[str], *, unlisted: OnUnlisted | None = None) -> None:
        path = os.path.abspath(root)
        _check_root(path)
        self._url = "file://" + path.rstrip("/") + "/"
        self._root = os.fsencode(path.rstrip("/") + "/")
        self._unsynced = unsynced(self._root)
        self._unlisted = unlisted

    @property
    def url(self) -> str:
        return self._url

    @property
    def features(self) -> Features:
        return _FEATURES

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        """Yield pages of files, as `walk` does; memory holds the names of one directory and its
        ancestors.
        """
        page = []
        search = Walk(self._root, self._url, prefix.encode(), start_after.encode(), self._unlisted)
        for key, status in walk(search):
            page.append(describe(key, status))
            if len(page) == _PAGE_KEYS:
                yield page
                page = []
        if page:
            yield page

    def head(self, key: str) -> ObjectInfo:
        path = self._path(key)
        with local_errors(self._url, key):
            status = os.stat(path)
        return describe(key, self._regular(key, status))

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> LocalReader:
        path = self._path(key)
        with local_errors(self._url, key):
            handle = os.open(path, _READ_FLAGS)
        try:
            info = describe(key, self._regular(key, os.fstat(handle)))
            if if_match is not None and info.etag != if_match:
                raise changed(object_url(self._url, key))
            if offset > info.size_bytes:
                raise too_short(object_url(self._url, key), info.size_bytes, offset)
        except BaseException:
            os.close(handle)
            raise
        return LocalReader(self, info, handle, offset, span_bytes(info.size_bytes, offset, length))

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        path = self._path(key)
        # `open` takes twice as long for a small file.
        try:
            handle = os.open(path, _READ_FLAGS)
            try:
                status = self._regular(key, os.fstat(handle))
                if if_match is not None and file_etag(status) != if_match:
                    raise changed(object_url(self._url, key))
                data = self._pread(key, handle, status.st_size, offset, length)
                after = os.fstat(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise local_error(error, self._url, key, writing=False) from error
        if after.st_mtime_ns != status.st_mtime_ns or after.st_size != status.st_size:
            raise changed(object_url(self._url, key))
        return data

    def get_each(self, objects: Iterable[tuple[str, int, str]], ahead: int = AHEAD) -> Contents:
        """Yield the contents, in two thirds of the time of `get`. A file with the listed etag after
        the read has not changed; `get` decides about all others.
        """
        del ahead
        # One loop for everything: a function call per file would take a tenth of the time.
        for key, size_bytes, etag in objects:
            path = self._root + check_path_key(key, self._url)
            data, found_etag = b"", None
            try:
                handle = os.open(path, _READ_FLAGS)
                try:
                    data = os.pread(handle, min(size_bytes, _READ_BYTES) + 1, 0)
                    found_etag = file_etag(os.fstat(handle))
                finally:
                    os.close(handle)
            except OSError:
                pass
            if found_etag != etag or len(data) != size_bytes:
                data = self.get(key, if_match=etag or None)
            yield data

    def put(self, key: str, data: Buffer, **options: Unpack[WriteOptions]) -> ObjectInfo:
        etag, sync = options.get("if_match"), options.get("sync", True)
        path, unsynced = self._path(key, writing=True), None if sync else self._unsynced
        # A lock takes two more system calls, which count for a small file. Without one, the write
        # is a `RetryableError` if another container removes the file before it is renamed.
        with LocalWriter(self._url, key, path, unsynced, locked=sync) as draft:
            draft.write(data)
            if options.get("if_absent"):
                return draft.commit_if_absent()
            return draft.commit() if etag is None else draft.commit_if_match(etag)

    def writer(self, key: str, *, like: ObjectInfo | None = None, sync: bool = True) -> LocalWriter:
        del like
        unsynced = None if sync else self._unsynced
        return LocalWriter(self._url, key, self._path(key, writing=True), unsynced)

    def sync(self) -> None:
        with local_errors(self._url, "", writing=True):
            self._unsynced.sync()

    def upload(self, key: str, path: Path) -> ObjectInfo:
        with (
            disk_errors(path, reading=True),
            open(path, "rb") as source,
            self.writer(key) as draft,
        ):
            draft.copy_from(source)
            return draft.commit()

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        """Delete a file and empty directories above it; the etag is not compared atomically."""
        path = self._path(key, writing=True)
        with local_errors(self._url, key, writing=True):
            try:
                if if_match is not None and file_etag(os.stat(path)) != if_match:
                    raise changed(object_url(self._url, key))
                os.unlink(path)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return
            folder = os.path.dirname(path)
            with suppress(OSError):
                while len(folder) >= len(self._root):
                    os.rmdir(folder)
                    folder = os.path.dirname(folder)
            sync_folder(folder)

    def _pread(
        self, key: str, handle: int, size_bytes: int, offset: int, length: int | None
    ) -> bytes:
        """Read bytes of an open file, which had ``size_bytes`` when it was opened."""
        if offset > size_bytes:
            raise too_short(object_url(self._url, key), size_bytes, offset)
        wanted = span_bytes(size_bytes, offset, length)
        data = os.pread(handle, min(wanted, _READ_BYTES), offset)
        while len(data) < wanted:
            more = os.pread(handle, min(wanted - len(data), _READ_BYTES), offset + len(data))
            if not more:
                raise self._ends_early(key, wanted - len(data))
            data += more
        return data

    def _path(self, key: str, *, writing: bool = False) -> bytes:
        path = self._root + check_path_key(key, self._url)
        if writing:
            with local_errors(self._url, key, writing=True):
                check_inside(os.path.dirname(path), self._root)
        return path

    def _regular(self, key: str, status: os.stat_result) -> os.stat_result:
        if not stat.S_ISREG(status.st_mode):
            raise NotFoundError(
                "object.missing", "it is not a regular file", where=object_url(self._url, key)
            )
        return status

    def _ends_early(self, key: str, missing_bytes: int) -> ObjectError:
        message = f"it ends {format_count(missing_bytes, 'byte')} too early"
        return ObjectError("object.truncated", message, where=object_url(self._url, key))


class LocalReader(Reader):
    """Reads the file that was opened, even if it is replaced."""

    def __init__(
        self, store: LocalStore, info: ObjectInfo, handle: int, offset: int, length: int
    ) -> None:
        self.info = info
        self._store = store
        self._handle: int | None = handle
        self._offset = offset
        self._left = length

    def __iter__(self) -> Iterator[Buffer]:
        assert self._handle is not None, "the reader is closed"
        while self._left:
            with local_errors(self._store.url, self.info.key):
                data = os.pread(self._handle, min(self._left, _CHUNK_BYTES), self._offset)
            if not data:
                raise self._store._ends_early(self.info.key, self._left)
            self._left -= len(data)
            self._offset += len(data)
            yield data
        if describe(self.info.key, os.fstat(self._handle)) != self.info:
            raise changed(object_url(self._store.url, self.info.key))

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
