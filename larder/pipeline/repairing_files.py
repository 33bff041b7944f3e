"""Replaces a file by what was published: nothing is visible before its digest is the recorded one.

A kill at any moment leaves the damaged file or the repaired one. What is about to be replaced, but
is the right content of another file (two files were exchanged), is kept aside first, in the work
of the dataset.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from larder.errors import DamageError, LarderError, NotFoundError
from larder.pipeline.digests import read_digest
from larder.pipeline.job import ManifestRef, listed
from larder.store import object_url
from larder.store.base import Buffer, ObjectInfo, Store, Writer
from larder.store.delegate import DelegatingStore
from larder.versions import layout
from larder.versions.publish import own_file_errors

__all__ = [
    "Recorded",
    "Repair",
    "Replacement",
    "Unwritten",
    "clear_aside",
    "copy_right",
    "keep_aside",
    "refused",
    "work_manifest",
]


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was published of a file: its path below the dataset's root, length and sha256."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Repair:
    """What became of a damaged file.

    Attributes:
        path: The file, below the dataset's root.
        done: Whether it is as it was published now; or could be made so, if that was only tried.
        message: What it was made from, or why it could not be made and what helps.
    """

    path: str
    done: bool
    message: str


def refused(path: str, error: LarderError) -> Repair:
    """A file that cannot be replaced, as a directory has its name.

    Args:
        path: The file, below the dataset's root.
        error: What writing it raised.
    """
    hint = error.hint
    if error.code == "object.bad_key":
        hint = "move what is in its place elsewhere, and repair again"
    return Repair(path, False, f"{error.message}{f'; {hint}' if hint else ''}")


class Replacement(Writer):
    """Writes a file that has to be as it was published.

    Args:
        root: The dataset's root; None to write nothing and only compare.
        recorded: What was published.
        url: The URL of the dataset's root, for errors.
    """

    def __init__(self, root: Store | None, recorded: Recorded, url: str) -> None:
        self._recorded = recorded
        self._url = url
        self._hasher = hashlib.sha256()
        self._bytes = 0
        with own_file_errors():
            self._inner = root.writer(recorded.path) if root else None

    def write(self, data: Buffer) -> None:
        """Append bytes."""
        self._hasher.update(data)
        self._bytes += len(data)
        if self._inner:
            with own_file_errors():
                self._inner.write(data)

    def commit(self) -> ObjectInfo:
        """Make it visible if it is what was published.

        Raises:
            DamageError: ``damage.digest``: it is not; nothing has changed.
        """
        found = self._hasher.hexdigest()
        if (self._bytes, found) != (self._recorded.bytes, self._recorded.sha256):
            message = "made again, its bytes are not those that were published"
            where = object_url(self._url, self._recorded.path)
            raise DamageError("damage.digest", message, where=where)
        if self._inner:
            with own_file_errors():
                return self._inner.commit()
        return ObjectInfo(self._recorded.path, self._bytes, "", 0)

    def abort(self) -> None:
        """Discard what was written."""
        if self._inner:
            self._inner.abort()


def copy_right(
    root: Store, recorded: Recorded, twins: Iterable[str], *, trial: bool = False
) -> str:
    """Copy a file from where its right content is, if it is anywhere.

    Args:
        root: The dataset's root.
        recorded: What was published.
        twins: Paths of files with its content, as far as it is known.
        trial: Whether nothing is written.

    Returns:
        The path that it was copied from; empty if it was not copied.
    """
    for path in (*twins, layout.aside_key(recorded.sha256)):
        try:
            with (
                root.open(path) as reader,
                Replacement(None if trial else root, recorded, root.url) as writer,
            ):
                for buffer in reader:
                    writer.write(buffer)
                writer.commit()
        except (NotFoundError, DamageError):
            continue
        return path
    return ""


def keep_aside(root: Store, path: str, size_bytes: int, sha256: str) -> None:
    """Keep a copy of a file that is about to be replaced, unless there is one.

    Args:
        root: The dataset's root.
        path: The file.
        size_bytes: Its length.
        sha256: Its digest, which is that of another file.
    """
    copy = Recorded(layout.aside_key(sha256), size_bytes, sha256)
    try:
        if root.head(copy.path).size_bytes == size_bytes:
            return
    except NotFoundError:
        pass
    with root.open(path) as reader, Replacement(root, copy, root.url) as writer:
        for buffer in reader:
            writer.write(buffer)
        writer.commit()


def clear_aside(root: Store) -> None:
    """Delete what was kept aside, once nothing is damaged that it could repair."""
    for info in list(listed(root, layout.aside_key(""))):
        root.delete(info.key)


class Unwritten(DelegatingStore):
    """The dataset's root, in which nothing is written: indexes for other readers, in passing."""

    def put(
        self,
        key: str,
        data: Buffer,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        like: ObjectInfo | None = None,
        md5: str | None = None,
        sync: bool = True,
    ) -> ObjectInfo:
        """Nothing is written."""
        del if_absent, if_match, like, md5, sync
        return ObjectInfo(key, len(data), "", 0)

    def writer(self, key: str, *, like: ObjectInfo | None = None, sync: bool = True) -> Writer:
        """Nothing is written."""
        del like, sync
        return _Nothing(key)

    def upload(self, key: str, path: Path) -> ObjectInfo:
        """Nothing is written."""
        return ObjectInfo(key, path.stat().st_size, "", 0)


class _Nothing(Writer):
    """Counts what would be written."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._bytes = 0

    def write(self, data: Buffer) -> None:
        """Count it."""
        self._bytes += len(data)

    def commit(self) -> ObjectInfo:
        """Describe what would be there."""
        return ObjectInfo(self._key, self._bytes, "", 0)

    def abort(self) -> None:
        """Nothing is to be done."""


def work_manifest(root: Store, key: str) -> ManifestRef:
    """A manifest in the work of a segment, whose name has the beginning of its digest.

    Args:
        root: The dataset's root.
        key: The manifest.

    Raises:
        DamageError: ``damage.digest``: its bytes do not match its name.
    """
    size_bytes, sha256 = read_digest(root, key)
    if not key.removesuffix(".parquet").endswith(sha256[:16]):
        raise DamageError("damage.digest", "the bytes do not match the name", where=key)
    return ManifestRef(key, sha256, size_bytes, rows=-1)
