"""Manifests in the dataset's store, read by reference.

Manifests in a directory are read in place. Manifests in an object store are downloaded to the local
disk, unless this process wrote them. The most recent manifests are kept there, because successive
batches read them again.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from larder.disk import disk_errors, scratch
from larder.errors import DamageError, NotFoundError
from larder.manifest.manifest_files import BATCH_ROWS, ManifestFile, read_manifest
from larder.manifest.sealed import MAKE_AGAIN, StoredFile
from larder.store import local_path, object_url
from larder.store.base import Store
from larder.store.own_files import published_file_errors

KEPT = 40
"""Maximum number of manifests kept on the disk while nothing reads them: enough for a version with
the maximum number of segments, whose manifests a plan reads more than once."""


class _LocalManifest:
    """One manifest; once verified, it has a ``download``, or in a directory a ``verified_etag``."""

    def __init__(self) -> None:
        self.filling = threading.Lock()
        self.users = 0
        self.download: Path | None = None
        self.verified_etag = ""


class LocalManifests:
    """Manifests on the disk of a process, at most ``kept`` while nothing reads. Thread-safe."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        # Reentrant: a reader may be garbage-collected, and so closed, in any thread.
        self._lock = threading.RLock()
        self._entries: OrderedDict[tuple[str, str], _LocalManifest] = OrderedDict()

    @contextmanager
    def fetched(self, store: Store, ref: StoredFile) -> Iterator[Path]:
        """Yield a manifest as a local file.

        ``damage.digest``: its bytes do not match the reference. NotFoundError: it is gone.
        """
        name = object_url(store.url, ref.path), ref.sha256
        with self._lock:
            entry = self._entries.setdefault(name, _LocalManifest())
            entry.users += 1
        try:
            with entry.filling:
                path = self._fill(entry, store, ref)
            yield path
        finally:
            with self._lock:
                entry.users -= 1
                self._entries.move_to_end(name)
                self._let_go(self._kept)

    def keep(self, store: Store, ref: StoredFile, path: Path) -> None:
        """Have a file that was written to an object store, so that it is not downloaded."""
        if store.features.local_path:
            return
        name, entry = (object_url(store.url, ref.path), ref.sha256), _LocalManifest()
        with self._lock, suppress(OSError):  # then it is downloaded
            entry.download = _folder() / secrets.token_hex(16)
            os.link(path, entry.download)
            self._entries.setdefault(name, entry)
            self._let_go(self._kept)

    def forget(self) -> None:
        """Drop all manifests that nothing reads, as in a new process."""
        with self._lock:
            self._let_go(0)

    def _let_go(self, kept: int) -> None:
        """Drop all but the ``kept`` most recently read."""
        idle = [name for name, entry in list(self._entries.items()) if not entry.users]
        for name in idle[: max(0, len(idle) - kept)]:
            entry = self._entries.pop(name, None)
            if entry and entry.download:
                entry.download.unlink(missing_ok=True)

    def _fill(self, entry: _LocalManifest, store: Store, ref: StoredFile) -> Path:
        if not store.features.local_path:
            entry.download = entry.download or self._download(store, ref)
            return entry.download
        with published_file_errors():
            etag = store.head(ref.path).etag
        if etag != entry.verified_etag:
            # No condition on the etag: another run may write the same bytes again.
            entry.verified_etag = _verify(store, ref)
        return local_path(store, ref.path)

    def _download(self, store: Store, ref: StoredFile) -> Path:
        path = _folder() / secrets.token_hex(16)
        with disk_errors(path.parent):
            try:
                with path.open("wb") as file:
                    _verify(store, ref, file)
            except BaseException:
                path.unlink(missing_ok=True)
                raise
        return path


@cache
def _folder() -> Path:
    """Make a folder for manifests, which is removed when this process ends."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(scratch())


def _verify(store: Store, ref: StoredFile, copy: BinaryIO | None = None) -> str:
    """Compare the bytes of a manifest with its reference; return the etag of the object."""
    hasher = hashlib.sha256()
    with published_file_errors(), store.open(ref.path) as reader:
        for buffer in reader:
            hasher.update(buffer)
            if copy:
                copy.write(buffer)
    if hasher.hexdigest() != ref.sha256:
        where = object_url(store.url, ref.path)
        message = "the bytes do not match the digest"
        raise DamageError("damage.digest", message, where=where, hint=MAKE_AGAIN)
    return reader.info.etag


_manifests = LocalManifests()
fetched, forget = _manifests.fetched, _manifests.forget


def read_ref(
    store: Store,
    ref: StoredFile,
    schema: pa.Schema,
    *,
    columns: Sequence[str] | None = None,
    first_row: int = 0,
    rows: int | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Read a manifest, or a range of its rows; see `larder.manifest.manifest_files.read_manifest`.

    ``damage.digest``, ``damage.manifest``: it is damaged. NotFoundError: it is gone.
    """
    with fetched(store, ref) as path:
        try:
            yield from read_manifest(
                path, schema, columns=columns, first_row=first_row, rows=rows, batch_rows=batch_rows
            )
        except DamageError:
            if path.exists():
                raise
            where = object_url(store.url, ref.path)  # another run has replaced it
            raise NotFoundError("object.missing", "no such manifest", where=where) from None


def put_named(store: Store, key: str, file: ManifestFile, role: str) -> StoredFile:
    with published_file_errors():
        store.upload(key, file.path)
    ref = StoredFile(key, file.bytes, file.sha256, role)
    _manifests.keep(store, ref, file.path)
    return ref
