"""The step that reads a version's documents and manifests again, and lists its objects.

Small files are always read completely: tags, version.json, the documents of segments and caches,
manifests and lists. Their statements about each other are computed again. Shards and cache files
are left to `larder.verify.reading`, in batches.

The listing finds objects that nothing names. Files whose bytes may differ from run to run have
their digest in the name. So a file that another run of the same inputs left, or has just written,
proves itself: it is unused, and not foreign.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Literal, NamedTuple

from larder.bounds import BATCH_SAMPLES
from larder.errors import ConfigError, DamageError, LarderError, NotFoundError, ObjectError
from larder.jobs import manifests
from larder.jobs.manifests import fetched
from larder.manifest.sealed import StoredFile
from larder.progress import Progress
from larder.shards.formats import shard_format
from larder.store.base import ObjectInfo, Store
from larder.store.own_files import listed, listed_without, read_digest
from larder.verify.document_check import DocumentReader
from larder.verify.figure_check import files_of_segment, sources_problem, version_problems
from larder.verify.verify_job import (
    Finding,
    Inspected,
    Unused,
    VerifyBatch,
    VerifyJob,
    compared,
    is_broken,
    open_verified,
    readable,
)
from larder.versions import layout
from larder.versions.documents import (
    CacheDocument,
    CacheFile,
    SegmentDocument,
    VersionDocument,
    parse_document,
)
from larder.versions.index import Shard, listed_shards, read_shards
from larder.versions.omitted import Omitted, read_omitted
from larder.versions.tags import TAG
from larder.versions.version_copy import named_by_document

_UNNAMED = "nothing names this file: move it elsewhere, or delete it"
_OTHER_BYTES = (
    "nothing names this file, and its bytes do not match the digest in its name: delete it"
)
_NAMED_BY_DIGEST = re.compile(
    r"(segments/[^/]+/(index/[a-z]+|caches/[^/]+/[^/]+)"
    r"|versions/[^/]+/(manifests/[a-z]+|lists/[^/]+))"
    r"-(?P<digest>[0-9a-f]{16})\.(parquet|mdb|npz|npy|txt)"
)
"""Keys that `larder.versions.layout` makes from a digest."""


def inspect_version(job: VerifyJob, *, progress: Progress) -> tuple[Inspected, tuple[Finding, ...]]:
    """Check all small files, and divide the rest into batches.

    ``version.missing``: there is no such version or tag, not even a damaged one.
    """
    progress.start("inspect")
    manifests.forget()  # read again what this process has read before
    inspection = _Inspection(job, open_verified(job), progress)
    inspected = inspection.inspect()
    progress.finish("inspect")
    return inspected, tuple(dict.fromkeys(inspection.findings))


class _Inspection(DocumentReader):
    def inspect(self) -> Inspected:
        tags = self.tags()
        id_ = self.version_id(tags)
        if not id_:
            return Inspected(None, "")
        version = self.document(VersionDocument, layout.version_key(id_))
        inspected = self._inspect_version(version) if version else Inspected(None, id_)
        return inspected._replace(is_latest=tags.get(TAG, id_) == id_)

    def _inspect_version(self, version: VersionDocument) -> Inspected:
        damaged = {file.path for file in version.files if not self._is_whole(file)}
        documents: dict[str, SegmentDocument] = {}
        caches: dict[str, CacheDocument | None] = {}
        segments: list[VerifyBatch] = []
        for use in version.segments:
            if document := self._document(version, use.id):
                documents[use.id] = document
            segments.append(self._segment(version, use.id, document, damaged))
            if use.cache:
                key = layout.cache_key(use.id, use.cache)
                caches[use.id] = self.document(CacheDocument, key)
        omitted = self._omitted(version, damaged)
        shards = None
        if omitted is not None:
            shards = {
                batch.segment: list(listed_shards(batch.shards, omitted))
                for batch in segments
                if batch.index
            }
            if all(each.index and each.segment in documents for each in segments):
                for path, message in version_problems(version, documents, caches, omitted, shards):
                    self.note(path, "content", "damage.manifest", message)
        infos, unused = self._objects(version, segments)
        batches, files, size_bytes = batches_of(self.job, version, segments, shards, infos)
        return Inspected(version, version.id, tuple(batches), files, size_bytes, unused)

    def _is_whole(self, file: StoredFile) -> bool:
        """Whether a file has its digest; if not, note a finding."""
        try:
            if file.path.endswith((".parquet", ".npz")):
                with fetched(self.root, file):
                    self.progress.advance("inspect", objects=1, bytes=file.bytes)
                return True
        except LarderError as error:
            if not isinstance(error, DamageError | NotFoundError) and not _is_of_file(error):
                raise
        code, message = compared(self.root, file)
        if code:
            self.note(file.path, "manifest", code, message)
        return not code

    def _document(self, version: VersionDocument, id_: str) -> SegmentDocument | None:
        """Read segment.json; None, with a finding, if it is damaged."""
        key = layout.segment_key(id_)
        document: SegmentDocument | None = self.document(SegmentDocument, key)
        if document is None or not self._has_known_format(document):
            return None
        if document.files != files_of_segment(version, id_):
            message = "it names other files than version.json does"
            self.note(key, "content", "damage.manifest", message)
        return document

    def _segment(
        self,
        version: VersionDocument,
        id_: str,
        document: SegmentDocument | None,
        damaged: set[str],
    ) -> VerifyBatch:
        """Read the index of a segment; returns a batch of all of its shards."""
        files = {
            each.role: each for each in files_of_segment(version, id_) if each.path not in damaged
        }
        rows, sources = files.get("rows"), files.get("sources")
        shards: Sequence[Shard] = ()
        if rows is not None:
            try:
                shards = read_shards(self.root, rows)
            except DamageError as error:
                self.note(rows.path, "manifest", error.code, error.message)
                rows = None
        problem = sources_problem(self.root, rows, sources) if shards and sources else ""
        if rows is not None and problem:
            self.note(rows.path, "content", "damage.manifest", problem)
        shape = document.shape.use if document else None
        return VerifyBatch(id_, shape, rows, sources, len(version.classes), tuple(shards))

    def _has_known_format(self, document: SegmentDocument) -> bool:
        try:
            shard_format(*document.shape.use)
        except ConfigError as error:
            message = f"{error.message}; use a newer Larder"
            key = layout.segment_key(document.id)
            self.note(key, "content", "damage.manifest", message)
            return False
        return True

    def _omitted(
        self, version: VersionDocument, damaged: set[str]
    ) -> dict[tuple[str, str], Omitted] | None:
        if any(file.path in damaged for file in version.files_of("omitted")):
            return None
        try:
            return read_omitted(self.root, version)
        except DamageError as error:
            path = layout.version_key(version.id)
            self.note(path, "content", error.code, error.message)
            return None

    def _objects(
        self, version: VersionDocument, segments: Sequence[VerifyBatch]
    ) -> tuple[dict[str, ObjectInfo], Unused]:
        """List the objects below the prefixes of the version, and note foreign objects."""
        infos: dict[str, ObjectInfo] = {}
        unused = Unused()
        for info, kind, message in objects_of(self.root, version, segments):
            infos[info.key] = info
            if kind == "foreign":
                self.note(info.key, "foreign", "damage.foreign", message)
            elif kind == "unused":
                unused = unused.plus(info.key, info.size_bytes)
            self.progress.advance("inspect")
        return infos, unused


def _is_of_file(error: LarderError) -> bool:
    """Whether a refusal of the whole store is about one file: see `published_file_errors`."""
    return isinstance(error.__cause__, ObjectError)


def batches_of(
    job: VerifyJob,
    version: VersionDocument,
    segments: Sequence[VerifyBatch],
    listed: Mapping[str, Sequence[Shard]] | None,
    infos: Mapping[str, ObjectInfo],
) -> tuple[list[VerifyBatch], int, int]:
    """Divide the files to read: all, or a seeded choice, and files that the listing proves damaged.

    Returns:
        The batches, each of about ``runner.batch_bytes``, or one cache file; the number of files
        of shards and caches of the version, and their bytes.
    """
    shards = [_listed(segment, listed) for segment in segments]
    every = [*chain.from_iterable(shards)]
    splits = version.cache.splits.values() if version.cache else ()
    caches: list[CacheFile] = [file for split in splits for file in split]
    wanted = chosen(job, ((shard.split, shard.files[0].path) for shard in every))
    wanted |= chosen(job, (("", file.path) for file in caches))

    def is_due(files: Sequence[StoredFile]) -> bool:
        return files[0].path in wanted or not all(
            file.path in infos and infos[file.path].size_bytes == file.bytes for file in files
        )

    batches: list[VerifyBatch] = []
    for segment, of_segment in zip(segments, shards, strict=True):
        empty = replace(segment, shards=())
        due = [shard for shard in of_segment if is_due(shard.published)]
        batches += _shard_batches(job.cluster.runner.batch_bytes, empty, due)
        for cache in caches:
            batch = replace(empty, cache=cache)
            if cache.segment == segment.segment and is_due(batch.published):
                batches.append(batch)
    files = [file for shard in every for file in shard.published]
    size_bytes = sum(file.bytes for file in files) + sum(file.bytes for file in caches)
    return batches, len(files) + len(caches), size_bytes


def chosen(job: VerifyJob, places: Iterable[tuple[str, str]]) -> set[str]:
    """Choose the keys to read: of each split the share that was asked for, at least one.

    The same seed chooses the same keys on every machine.
    """
    if job.sample_percent is None:
        return {key for _, key in places}
    by_split: dict[str, list[str]] = {}
    for split, key in places:
        by_split.setdefault(split, []).append(key)
    choice: set[str] = set()
    for keys in by_split.values():
        count = max(1, math.ceil(len(keys) * job.sample_percent / 100))
        keys.sort(key=lambda key: hashlib.sha256(f"{job.seed}\n{key}".encode()).digest())
        choice |= set(keys[:count])
    return choice


def _listed(segment: VerifyBatch, listed: Mapping[str, Sequence[Shard]] | None) -> list[Shard]:
    """Return the shards of a segment that the version lists; all if the list is not known."""
    shards = (listed or {}).get(segment.segment, segment.shards)
    paths = {shard.files[0].path for shard in shards}
    return [shard for shard in segment.shards if shard.files[0].path in paths]


def _shard_batches(
    batch_bytes: int, empty: VerifyBatch, shards: Sequence[Shard]
) -> Iterator[VerifyBatch]:
    batch: list[Shard] = []
    size_bytes = rows = 0
    for shard in shards:
        shard_bytes = sum(file.bytes for file in shard.published)
        size_bytes, rows = size_bytes + shard_bytes, rows + shard.samples
        if batch and (size_bytes > batch_bytes or rows > BATCH_SAMPLES):
            yield replace(empty, shards=tuple(batch))
            batch, size_bytes, rows = [], shard_bytes, shard.samples
        batch.append(shard)
    if batch:
        yield replace(empty, shards=tuple(batch))


class ListedObject(NamedTuple):
    """An object below the prefixes of a version.

    ``foreign``: nothing names it. ``unused``: nothing names it, but Larder wrote or moved it there.
    """

    info: ObjectInfo
    kind: Literal["named", "foreign", "unused"] = "named"
    message: str = ""


def objects_of(
    root: Store,
    version: VersionDocument,
    segments: Sequence[VerifyBatch],
) -> Iterator[ListedObject]:
    """Yield all objects below the prefixes of a version, and say which of them are foreign.

    Receipts and other work are left out, because there may be more of them than of all other
    objects. Unfinished caches are not foreign: their builder may be at work.
    """
    named = set(named_by_document(version))
    yield from (ListedObject(info, "unused") for info in listed(root, layout.REPLACED_PREFIX))
    named.add(layout.card_key(version.id))
    beside = layout.consumers_prefix(version.id), layout.runs_prefix(version.id)
    for info in listed(root, layout.version_prefix(version.id)):
        is_named = info.key in named or info.key.startswith(beside)
        yield ListedObject(info) if is_named else _unnamed(root, info)
    for segment in segments:
        yield from _of_segment(root, segment, named)


def _of_segment(root: Store, segment: VerifyBatch, named: set[str]) -> Iterator[ListedObject]:
    for shard in segment.shards:
        named |= {file.path for file in shard.published}
    index = layout.index_prefix(segment.segment)
    caches: dict[str, Collection[str] | None] = {}
    prefix, work = layout.segment_prefix(segment.segment), layout.work_prefix(segment.segment)
    for info in listed_without(root, prefix, work):
        cache = layout.cache_of(info.key)
        if cache and cache[1] not in caches:
            caches[cache[1]] = _cache_files(root, *cache)
        files = caches[cache[1]] if cache else ()
        of_shard = info.key.startswith(layout.shards_prefix(segment.segment)) or (
            info.key.startswith(index) and "/" in info.key.removeprefix(index)
        )
        unknown = of_shard and segment.index is None
        if unknown or info.key in named or files is None or info.key in files:
            yield ListedObject(info)
        else:
            yield _unnamed(root, info)


def _unnamed(root: Store, info: ObjectInfo) -> ListedObject:
    """Say whether an unnamed file is foreign, or proves itself by the digest in its name."""
    match = _NAMED_BY_DIGEST.fullmatch(info.key)
    if match is None:
        return ListedObject(info, "foreign", _UNNAMED)
    try:
        _, sha256 = read_digest(root, info.key)
    except NotFoundError:
        return ListedObject(info)  # deleted in the meantime
    except LarderError as error:
        if not is_broken(root, error):
            raise
        sha256 = ""
    if sha256.startswith(match["digest"]):
        return ListedObject(info, "unused")
    return ListedObject(info, "foreign", _OTHER_BYTES)


def _cache_files(root: Store, segment: str, cache: str) -> Collection[str] | None:
    """Return the files of a cache; None if the cache is unfinished or damaged."""
    key = layout.cache_key(segment, cache)
    try:
        document = parse_document(CacheDocument, readable(root, key) or b"", key)
    except DamageError:
        return None
    return {key, *(file.path for file in document.files.values())}
