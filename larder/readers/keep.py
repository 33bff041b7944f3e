"""Shards kept on a disk of this machine, within a limit; each is downloaded once for all ranks.

A shard is named by its digest, and appears after it was verified; so it serves every version that
has it. When room is needed, the least recently used shards are removed, by their access times,
which readers set. A process that reads a removed shard reads it to the end, because the system
keeps open files. The next reader downloads the shard again.

The documents and the index of each version are beside the shards. Once such a version is open, it
is read without its storage.

The file ``.larder-kept`` in the directory has the name of every shard, written before the download.
No other file is ever removed, whatever its name. A file that others have put there under a shard's
name is read only if it is that shard.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeVar

from larder.disk import (
    DRAFT_PREFIX,
    disk_errors,
    locks_exclude,
    open_regular,
    read_file,
    removed_if_abandoned,
    sha256_file,
)
from larder.errors import ConfigError, NotFoundError, StoreError
from larder.manifest.sealed import StoredFile
from larder.store import open_store
from larder.store.base import Store
from larder.store.download import download_once, free_room, locked
from larder.versions import layout
from larder.versions.documents import VersionDocument
from larder.versions.publish import read_version
from larder.versions.version_copy import copy_version

T = TypeVar("T")

_LOCK = ".keep.lock"
_RECORD = ".larder-kept"
_VERSION = ".larder-version-"
_SHARD = re.compile(r"[0-9a-f]{64}(\.\w+)?")
_WAIT_SECONDS = 0.05


class KeptShards:
    """Shards in a directory that processes of this machine share. May be pickled.

    Args:
        directory: Made if needed, and may have other files. Its file system must have locks, unless
            all shards are there.
        limit_bytes: Most bytes of all its shards, including running downloads.
    """

    def __init__(self, directory: str | Path, limit_bytes: int | None = None) -> None:
        self._directory = Path(directory).expanduser().absolute()
        self._limit_bytes = limit_bytes
        self._verified: set[str] = set()
        if _is_of_storage(self._directory.resolve()):
            message, hint = "it belongs to a storage", "name a directory beside it for kept shards"
            raise ConfigError("config.path", message, where=str(directory), hint=hint)

    def check_limit(self, largest_bytes: int) -> None:
        """Refuse a limit that the largest shard exceeds."""
        if self._limit_bytes is not None and self._limit_bytes < largest_bytes:
            message = f"the limit is {self._limit_bytes:,} bytes, but a shard has {largest_bytes:,}"
            hint = "raise it to that of the largest shard at least, better to that of many"
            raise ConfigError("config.invalid_value", message, where="keep_bytes", hint=hint)

    def read(self, store: Store, file: StoredFile, reading: Callable[[Store, str], T]) -> T:
        """Call a function with the store and the key of the copy, downloaded first if needed.

        The function is called again if another process removed the copy before it was opened.
        """
        name = f"{file.sha256}{PurePosixPath(file.name).suffix}"
        path = self._directory / name
        copies = open_store(str(self._directory))
        while True:
            download_once(store, file.path, path, file.bytes, file.sha256, self._room)
            try:
                self._verify(path, file.sha256)
                _touch(path)
                return reading(copies, name)
            except (FileNotFoundError, NotFoundError):
                continue

    def documents(self, store: Store, version: VersionDocument) -> Store:
        """Return the store with the documents and the index of a version.

        The store is a copy in the directory, made first if needed; or ``store`` if the directory
        takes no files.
        """
        root = self._directory / f"{_VERSION}{version.id}"
        copies = open_store(str(root))
        try:
            is_there = (root / layout.version_key(version.id)).is_file()
            if not is_there or read_version(copies, version.id) != version:
                files = [file for file in version.files if file.role in ("rows", "omitted")]
                copy_version(store, version, files, root)
        except (ConfigError, StoreError) as error:
            if error.code not in ("config.path", "store.full"):
                raise
            return store
        return copies

    def _verify(self, path: Path, sha256: str) -> None:
        """Compare a file that Larder did not download with the shard's digest, once."""
        if path.name in self._verified:
            return
        with disk_errors(path, reading=True):
            if path.name not in self._recorded() and sha256_file(path) != sha256:
                raise _foreign(path)
        self._verified.add(path.name)

    def _recorded(self) -> set[str]:
        """Read the names of all shards that were ever kept in the directory."""
        with disk_errors(self._directory / _RECORD, reading=True):
            try:
                text = read_file(self._directory / _RECORD).decode(errors="replace")
            except (FileNotFoundError, PermissionError):
                return set()
        return set(filter(_SHARD.fullmatch, text.splitlines()))

    @contextmanager
    def _room(self, path: Path, size_bytes: int) -> Iterator[None]:
        """Remove the least recently used shards until one more is within the limit."""
        with locked(self._directory / _LOCK):
            while self._limit_bytes is not None and self._over(size_bytes):
                time.sleep(_WAIT_SECONDS)  # until other processes finish their downloads
            if path.name not in self._recorded():
                if os.path.lexists(path):
                    raise _foreign(path)
                record = self._directory / _RECORD
                with disk_errors(record), open(record, "a", opener=open_regular) as file:
                    file.write(f"\n{path.name}")
            with free_room(path, size_bytes):
                yield

    def _over(self, size_bytes: int) -> bool:
        """Remove shards to add this many bytes; return whether the limit is still exceeded."""
        assert self._limit_bytes is not None, "there is a limit"
        with disk_errors(self._directory):
            shards, drafts = self._files()
            used_bytes = sum(file.bytes for file in shards + drafts) + size_bytes
            for shard in sorted(shards):
                if used_bytes <= self._limit_bytes:
                    break
                with suppress(FileNotFoundError):
                    shard.path.unlink()
                used_bytes -= shard.bytes
        return used_bytes > self._limit_bytes

    def _is_abandoned(self, draft: Path) -> bool:
        if removed_if_abandoned(draft):
            return True
        if not locks_exclude(self._directory):
            message = "its file system has no locks, with which processes share kept shards"
            hint, where = "name a directory on a local disk", str(self._directory)
            raise ConfigError("config.path", message, where=where, hint=hint)
        return False

    def _files(self) -> tuple[list[_KeptFile], list[_KeptFile]]:
        """List the shards and the running downloads; remove abandoned downloads."""
        while True:
            with suppress(FileNotFoundError):
                shards, drafts = self._scanned()
                if not [draft for draft in drafts if self._is_abandoned(draft.path)]:
                    return shards, drafts
            # Look again: a file that became a shard meanwhile would count as neither.

    def _scanned(self) -> tuple[list[_KeptFile], list[_KeptFile]]:
        shards: list[_KeptFile] = []
        drafts: list[_KeptFile] = []
        recorded = self._recorded()
        with os.scandir(self._directory) as entries:
            for entry in entries:
                is_shard = entry.name in recorded
                if (is_shard or entry.name.startswith(DRAFT_PREFIX)) and entry.is_file(
                    follow_symlinks=False
                ):
                    status = entry.stat()
                    file = _KeptFile(status.st_atime_ns, status.st_size, Path(entry.path))
                    (shards if is_shard else drafts).append(file)
        return shards, drafts


class _KeptFile(NamedTuple):
    used_ns: int
    bytes: int
    path: Path


def _touch(path: Path) -> None:
    """Set the access time of a shard, if possible: not every file system sets it on reading."""
    status = path.stat()
    with suppress(OSError):  # the file is another user's, or its disk is read-only
        os.utime(path, ns=(time.time_ns(), status.st_mtime_ns))


def _foreign(path: Path) -> ConfigError:
    message, hint = "it is not the shard of that name", "move it away, or name another directory"
    return ConfigError("config.path", message, where=str(path), hint=hint)


def _is_of_storage(directory: Path) -> bool:
    """Whether the directory has the datasets of a storage, or is in one of these datasets."""
    datasets = directory if directory.name == "larder" else directory / "larder"
    return any(datasets.glob("*/versions")) or any(
        each.parent.name == "larder" and os.path.isdir(each / "versions")
        for each in (directory, *directory.parents)
    )
