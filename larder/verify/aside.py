"""Moves files aside before they are made again, and back if that fails: nothing is ever lost.

What is damaged goes to work/repair/RUN/PATH. It goes back where its place is still free
when a repair ends, or when the next one begins, as after a kill. It is deleted only when its place
has what belongs there, and neither a version nor the mirror nor a segment that is being built may
need it elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from larder.disk import disk_errors, sync_folder
from larder.errors import (
    ConfigError,
    DamageError,
    FatalError,
    LarderError,
    NotFoundError,
    ObjectError,
    PreconditionError,
)
from larder.jobs.manifests import read_ref
from larder.manifest.digest import sha256_hex
from larder.manifest.reference import ManifestRef
from larder.manifest.schemas import OBJECTS
from larder.manifest.sealed import seal, unseal
from larder.pipeline.contents import named_files
from larder.pipeline.receipts import read_receipts
from larder.progress import Progress
from larder.store import local_path, object_url
from larder.store.base import Store
from larder.store.own_files import listed, published_file_errors
from larder.verify.documents import is_lost, whole_versions
from larder.verify.findings import has_content, is_broken, read_digest, readable
from larder.verify.job import VerifyJob, open_verified
from larder.versions import layout
from larder.versions.documents import VersionDocument
from larder.versions.publish import read_version

STAGE = "repair"
_DOCUMENT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Repair:
    """What became of a damaged file; ``message`` says what it was made from, or why it was not."""

    path: str
    done: bool
    message: str


@contextmanager
def only_repair(root: Store, run: str) -> Iterator[None]:
    """Within, no other repair of the dataset begins; one that was killed here may have begun.

    Refused with ``run.repairing`` if another one has begun, and not ended.
    """
    key = layout.REPAIR_KEY
    claim = seal({"run": run, "host": platform.node(), "process": process_id()})
    try:
        with published_file_errors():
            etag = root.put(key, claim, if_absent=True).etag
    except PreconditionError:
        _end_claim(root, key)
        etag = root.put(key, claim, if_absent=True).etag
    try:
        yield
    finally:
        with suppress(LarderError):
            root.delete(key, if_match=etag)


def _end_claim(root: Store, key: str) -> None:
    """Delete the claim of a repair whose process has ended; refuse to if that is not certain."""
    claim: dict[str, Any] = {}
    with suppress(NotFoundError):
        etag = root.head(key).etag
        with suppress(DamageError):
            claim = unseal(readable(root, key) or b"", key)
        if claim.get("host") == platform.node() and not _is_running(claim["process"]):
            root.delete(key, if_match=etag)
            return
        message = "another repair of this dataset has begun, and not ended"
        if claim:
            message += f": {claim['run']}, process {claim['process']} on {claim['host']}"
        where = object_url(root.url, key)
        hint = f"wait until it has ended; if it was killed, delete {where} and repair again"
        raise FatalError("run.repairing", message, where=where, hint=hint)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def process_id() -> int:
    return os.getpid()


def set_aside(
    job: VerifyJob, run: str, paths: Collection[str], *, progress: Progress
) -> list[Repair]:
    """Move files aside, so that their places are free; returns those that could not be moved."""
    root = open_verified(job)
    refused = []
    for path in paths:
        progress.advance(STAGE)
        try:
            if exists(root, path):
                _move(root, path, layout.aside_prefix(run) + path)
        except (ObjectError, DamageError) as error:
            hint = f"; {error.hint}" if error.hint else ""
            refused.append(Repair(path, False, f"it cannot be moved aside: {error.message}{hint}"))
    return refused


def put_back(job: VerifyJob, *, progress: Progress) -> None:
    """Move back what is aside wherever its place is free; what is there, too, is not needed."""
    del progress  # also if the run is stopped
    root = open_verified(job)
    for key in filter(_is_aside, _listed_aside(root)):
        with suppress(ObjectError, DamageError, ConfigError):  # it stays aside, and is reported
            if not exists(root, _place(key)):
                _move(root, key, _place(key))
            elif has_content(root, _place(key), *read_digest(root, key)):
                root.delete(key)


def end_repair(job: VerifyJob, left: Collection[str], *, progress: Progress) -> list[str]:
    """Delete what is aside, unless it may be needed for what is ``left``; returns what stays."""
    root = open_verified(job)
    kept = []
    sizes = _listed_aside(root)
    needed = _Needed(root, frozenset(sizes.values())) if sizes else None
    for key in sizes:
        progress.advance(STAGE)
        if not needed or not _is_aside(key) or _place(key) in left or needed.has(key):
            kept.append(key)
        else:
            root.delete(key)
    return kept


def exists(root: Store, path: str) -> bool:
    """Whether anything is at a path, readable or not."""
    if root.features.local_path:
        return os.path.lexists(local_path(root, path))
    try:
        root.head(path)
    except NotFoundError:
        return False
    return True


@dataclass
class Spares:
    """Files that may have the content of others: all that have one of the lengths looked for."""

    root: Store
    sizes: Collection[int]
    _keys: dict[int, list[str]] | None = field(default=None, init=False)

    def fill(self, path: str, size_bytes: int, sha256: str) -> str:
        """Copy a file from where its exact content is; returns that path.

        It is empty if no file has it, or if something was put in its place meanwhile.
        """
        for key in self._listed().get(size_bytes, ()):
            if key != path and has_content(self.root, key, size_bytes, sha256):
                if exists(self.root, path):
                    break
                with suppress(ObjectError):
                    try:
                        _copy(self.root, key, path)
                    except DamageError:
                        self.root.delete(path)
                    else:
                        return key
        return ""

    def _listed(self) -> dict[int, list[str]]:
        if self._keys is None:
            self._keys = defaultdict(list)
            for prefix in (layout.aside_prefix(), "versions/", layout.SEGMENTS_PREFIX, "tags/"):
                for info in listed(self.root, prefix):
                    if info.size_bytes in self.sizes:
                        self._keys[info.size_bytes].append(info.key)
        return self._keys


def _listed_aside(root: Store) -> dict[str, int]:
    """By key, the length of everything below the prefix of all repairs."""
    return {info.key: info.size_bytes for info in listed(root, layout.aside_prefix())}


def _is_aside(key: str) -> bool:
    """Whether a repair has moved it there: something else may be beside the folders of runs."""
    return key.count("/") > layout.aside_prefix().count("/")


def _place(key: str) -> str:
    """Where a file was before it was moved to work/repair/RUN/PATH."""
    return key.split("/", 3)[3]


def _move(root: Store, source: str, target: str) -> None:
    """Rename a file; where stores cannot, copy it, compare the copy, and delete it.

    Where that fails, the file stays; so does the copy if the file was changed meanwhile.
    """
    if not root.features.local_path:
        etag = _copy(root, source, target)
        root.delete(source, if_match=etag)
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


def _copy(root: Store, source: str, target: str) -> str:
    """Copy a file, and compare the copy; returns the etag of what was read."""
    hasher, size_bytes = hashlib.sha256(), 0
    with published_file_errors(), root.open(source) as reader, root.writer(target) as writer:
        for buffer in reader:
            hasher.update(buffer)
            size_bytes += len(buffer)
            writer.write(buffer)
        writer.commit()
    if not has_content(root, target, size_bytes, hasher.hexdigest()):
        message = "the copy does not have the bytes that were read"
        raise DamageError("damage.digest", message, where=object_url(root.url, target))
    return reader.info.etag


class _Needed:
    """Whether what is aside, of one of these sizes, is the only file with what something names."""

    def __init__(self, root: Store, sizes: Collection[int]) -> None:
        self._root = root
        self._lost = _lost_objects(root, sizes)
        self._named = _named_digests(root)

    def has(self, key: str) -> bool:
        """Whether it is, or may be, because that is not known or it cannot be read."""
        root = self._root
        try:
            size_bytes, sha256 = read_digest(root, key)
        except ObjectError as error:
            if not is_broken(root, error):
                raise
            return True
        if self._named is None or self._lost is None:
            return True
        if sha256 in self._named:
            return not has_content(root, self._named[sha256], size_bytes, sha256)
        if size_bytes in self._lost:
            return True
        return size_bytes <= _DOCUMENT_BYTES and _is_lost_document(root, bytes(root.get(key)))


def _published_versions(root: Store) -> Iterator[VersionDocument]:
    """Every version that was published; `DamageError` if a document is lost or misplaced."""
    for version, has_document in whole_versions(root).items():
        document = read_version(root, version) if has_document else None
        if document is not None:
            yield document
        elif is_lost(root, version):
            key = layout.version_key(version)
            raise DamageError("damage.manifest", "it has to be repaired first", where=key)


def _named_digests(root: Store) -> dict[str, str] | None:
    """By digest, the files that versions and segments name; None if one cannot be read."""
    digests: dict[str, str] = {}
    segments: set[str] = set()
    try:
        for document in _published_versions(root):
            digests |= {file.sha256: file.path for file in named_files(root, document)}
            segments |= {use.id for use in document.segments}
        names = (info.key.split("/") for info in listed(root, layout.SEGMENTS_PREFIX))
        for segment in {name[1] for name in names if len(name) > 2} - segments:
            for shard in chain.from_iterable(each.shards for each in read_receipts(root, segment)):
                for file in shard.files:
                    digests[file.sha256] = layout.shard_key(segment, shard.split, file.name)
    except LarderError:
        return None
    return digests


def _lost_objects(root: Store, sizes: Collection[int]) -> frozenset[int] | None:
    """The lengths of objects that are not in the mirror as versions list them, among some lengths.

    None if that is not known. What is lost from a mirror may be what was found in another place.
    """
    prefix, lost = layout.MIRROR_PREFIX, set[int]()
    values = pa.array(set(sizes) - {0}, pa.int64())
    if not any(True for _ in listed(root, prefix)):
        return frozenset()
    try:
        for document in _published_versions(root):
            inventory = ManifestRef.of(document.file("objects"))
            for batch in read_ref(root, inventory, OBJECTS, columns=["key", "size_bytes"]):
                matching = batch.filter(pc.is_in(batch.column("size_bytes"), values))
                for key, size_bytes in zip(*(c.to_pylist() for c in matching.columns), strict=True):
                    if size_bytes not in lost and not _has_size(root, prefix + key, size_bytes):
                        lost.add(size_bytes)
    except LarderError:
        return None
    return frozenset(lost)


def _has_size(root: Store, key: str, size_bytes: int) -> bool:
    try:
        return root.head(key).size_bytes == size_bytes
    except ObjectError:
        return False


def _is_lost_document(root: Store, data: bytes) -> bool:
    """Whether it is a tag, version.json, segment.json or cache.json that is nowhere else."""
    try:
        plain = unseal(data, "")
    except DamageError:
        return False
    data = seal(plain)  # which is what its place has once it is repaired
    size_bytes, sha256 = len(data), sha256_hex(data)
    places = [info.key for info in listed(root, layout.TAGS_PREFIX)]
    with suppress(KeyError, TypeError):
        key = {
            "larder-version-1": lambda: layout.version_key(plain["id"]),
            "larder-segment-1": lambda: layout.segment_key(plain["id"]),
            "larder-segment-cache-1": lambda: layout.cache_key(plain["segment"], plain["id"]),
        }[plain["format"]]()
        places = [key, layout.copy_key(key, sha256)]
    return not any(has_content(root, each, size_bytes, sha256) for each in places)
