"""Moves files aside before they are made again, and back if that fails: nothing is ever lost.

What is damaged goes to work/repair/RUN/PATH. It goes back where its place is still free
when a repair ends, or when the next one begins, as after a kill. It is deleted only when its place
has what belongs there, and no version needs it elsewhere.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field

from larder.atomic import sync_folder
from larder.disk import disk_errors
from larder.errors import DamageError, LarderError, NotFoundError, ObjectError
from larder.manifest.digest import sha256_hex
from larder.pipeline.job import listed
from larder.pipeline.named import named_files
from larder.progress import Progress
from larder.store import local_path, object_url
from larder.store.base import Store
from larder.verify.digests import read_digest
from larder.verify.documents import whole_versions
from larder.verify.job import VerifyJob, is_broken, open_verified
from larder.versions import layout
from larder.versions.documents import unseal
from larder.versions.publish import own_file_errors, read_version

STAGE = "repair"
_DOCUMENT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Repair:
    """What became of a damaged file.

    Attributes:
        path: The file, below the dataset's root.
        done: Whether it is as it was published now.
        message: What it was made from, or why it could not be made and what helps.
    """

    path: str
    done: bool
    message: str


def set_aside(
    job: VerifyJob, run: str, paths: Collection[str], *, progress: Progress
) -> list[Repair]:
    """Move files aside, so that their places are free.

    Returns:
        Those that could not be moved.
    """
    root = open_verified(job)
    refused = []
    for path in paths:
        progress.advance(STAGE)
        try:
            if is_there(root, path):
                _move(root, path, layout.aside_prefix(run) + path)
        except (ObjectError, DamageError) as error:
            hint = f"; {error.hint}" if error.hint else ""
            refused.append(Repair(path, False, f"it cannot be moved aside: {error.message}{hint}"))
    return refused


def put_back(job: VerifyJob, *, progress: Progress) -> None:
    """Move back what is aside wherever its place is free; what is there, too, is not needed."""
    del progress  # also if the run is stopped
    root = open_verified(job)
    for key in _aside(root):
        if not is_there(root, _place(key)):
            _move(root, key, _place(key))
        elif _is_copy(root, key, _place(key)):
            root.delete(key)


def end_repair(job: VerifyJob, *, progress: Progress) -> list[str]:
    """Delete what is aside, unless a version needs it.

    Returns:
        What was not deleted: a version names it that does not have it, or may do so.
    """
    root = open_verified(job)
    kept = []
    keys = _aside(root)
    named = _named_digests(root) if keys else None
    for key in keys:
        progress.advance(STAGE)
        if _is_needed(root, key, named):
            kept.append(key)
        else:
            root.delete(key)
    return kept


def is_there(root: Store, path: str) -> bool:
    """Whether anything is at a path, readable or not."""
    if root.features.local_path:
        return os.path.lexists(local_path(root, path))
    try:
        root.head(path)
    except NotFoundError:
        return False
    return True


def has_content(root: Store, path: str, size_bytes: int, sha256: str) -> bool:
    """Whether a file can be read, and has these bytes."""
    try:
        return read_digest(root, path) == (size_bytes, sha256)
    except ObjectError as error:
        if isinstance(error, NotFoundError) or is_broken(root, error):
            return False
        raise


@dataclass
class Spares:
    """Files that may have the content of others: all that have one of the lengths looked for."""

    root: Store
    sizes: Collection[int]
    _keys: dict[int, list[str]] | None = field(default=None, init=False)

    def fill(self, path: str, size_bytes: int, sha256: str) -> str:
        """Copy a file from where its exact content is; returns that path, or nothing."""
        for key in self._listed().get(size_bytes, ()):
            if key != path and has_content(self.root, key, size_bytes, sha256):
                try:
                    _copy(self.root, key, path)
                except (DamageError, ObjectError):
                    self.root.delete(path)
                    continue
                return key
        return ""

    def _listed(self) -> dict[int, list[str]]:
        if self._keys is None:
            self._keys = defaultdict(list)
            for prefix in (layout.aside_prefix(), "versions/", layout.segments_prefix(), "tags/"):
                for info in listed(self.root, prefix):
                    if info.size_bytes in self.sizes:
                        self._keys[info.size_bytes].append(info.key)
        return self._keys


def _aside(root: Store) -> list[str]:
    return [info.key for info in listed(root, layout.aside_prefix())]


def _place(key: str) -> str:
    """Where a file was before it was moved to work/repair/RUN/PATH."""
    return key.split("/", 3)[3]


def _move(root: Store, source: str, target: str) -> None:
    """Rename a file; where stores cannot, copy it, compare the copy, and delete it.

    Raises:
        ObjectError: It is no file, or cannot be read: it stays where it is.
        DamageError: ``damage.digest``: the copy differs.
    """
    if not root.features.local_path:
        _copy(root, source, target)
        root.delete(source)
        return
    path, moved = local_path(root, source), local_path(root, target)
    if path.is_symlink() or not path.is_file():
        hint = "move what is in its place elsewhere, and repair again"
        where = object_url(root.url, source)
        raise ObjectError("object.bad_key", "what has its name is no file", where=where, hint=hint)
    with disk_errors(moved):
        moved.parent.mkdir(parents=True, exist_ok=True)
        path.rename(moved)
        for folder in (moved.parent, path.parent):
            sync_folder(os.fsencode(folder))
    with suppress(OSError):  # folders of the aside that are empty now
        for folder in path.parents if source.startswith(layout.aside_prefix()) else ():
            folder.rmdir()


def _copy(root: Store, source: str, target: str) -> None:
    hasher, size_bytes = hashlib.sha256(), 0
    with own_file_errors(), root.open(source) as reader, root.writer(target) as writer:
        for buffer in reader:
            hasher.update(buffer)
            size_bytes += len(buffer)
            writer.write(buffer)
        writer.commit()
    if not has_content(root, target, size_bytes, hasher.hexdigest()):
        message = "the copy does not have the bytes that were read"
        raise DamageError("damage.digest", message, where=object_url(root.url, target))


def _is_copy(root: Store, key: str, place: str) -> bool:
    try:
        return has_content(root, place, *read_digest(root, key))
    except ObjectError as error:
        if not is_broken(root, error):
            raise
        return False


def _named_digests(root: Store) -> dict[str, str] | None:
    """By digest, the files that versions name; None if one of these cannot be read."""
    digests: dict[str, str] = {}
    for version, has_document in whole_versions(root).items():
        try:
            document = read_version(root, version) if has_document else None
            if document is None:
                return None
            digests |= {file.sha256: file.path for file in named_files(root, document)}
        except LarderError:
            return None
    return digests


def _is_needed(root: Store, key: str, named: dict[str, str] | None) -> bool:
    """Whether a file that is aside is the only one with a content that a version names."""
    try:
        size_bytes, sha256 = read_digest(root, key)
    except ObjectError as error:
        if not is_broken(root, error):
            raise
        return False
    if named is None:
        return True
    if sha256 in named:
        return not has_content(root, named[sha256], size_bytes, sha256)
    return size_bytes <= _DOCUMENT_BYTES and _is_lost_document(root, bytes(root.get(key)))


def _is_lost_document(root: Store, data: bytes) -> bool:
    """Whether it is a version.json, segment.json or cache.json that is nowhere else."""
    try:
        plain = unseal(data, "")
        key = {
            "larder-version-1": lambda: layout.version_key(plain["id"]),
            "larder-segment-1": lambda: layout.segment_key(plain["id"]),
            "larder-segment-cache-1": lambda: layout.cache_key(plain["segment"], plain["id"]),
        }[plain["format"]]()
    except (DamageError, KeyError, TypeError):
        return False
    size_bytes, sha256 = len(data), sha256_hex(data)
    copies = (key, layout.copy_key(key, sha256))
    return not any(has_content(root, each, size_bytes, sha256) for each in copies)
