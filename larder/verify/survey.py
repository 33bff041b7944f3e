"""The step that reads a version's documents and manifests again, and lists its objects.

Small files are always read completely: tags, version.json, the documents of segments and caches,
manifests and lists. Their statements about each other are computed again. Shards and cache files
are left to `larder.verify.reading`, in batches.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from larder.bounds import BATCH_SAMPLES
from larder.errors import ConfigError, DamageError, LarderError, NotFoundError, ObjectError
from larder.jobs import manifests
from larder.jobs.manifests import fetched
from larder.manifest.sealed import StoredFile
from larder.progress import Progress
from larder.shards.formats import shard_format
from larder.store.base import ObjectInfo
from larder.verify.document_check import DocumentReader
from larder.verify.figure_check import SegmentFacts, sources_problem, version_problems
from larder.verify.findings import Finding, compared
from larder.verify.foreign import objects_of
from larder.verify.verify_job import Inspected, Unused, VerifyBatch, VerifyJob, open_verified
from larder.versions import layout
from larder.versions.documents import CacheDocument, CacheFile, SegmentDocument, VersionDocument
from larder.versions.index import Shard, listed_shards, read_shards
from larder.versions.omitted import Omitted, read_omitted


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
        id_ = self.version_id(self.tags())
        if not id_:
            return Inspected(None, "")
        version = self.document(VersionDocument, layout.version_key(id_))
        if version is None:
            return Inspected(None, id_)
        return self._inspect_version(version)

    def _inspect_version(self, version: VersionDocument) -> Inspected:
        damaged = {file.path for file in version.files if not self._is_whole(file)}
        segments = [self._segment(version, use.id, damaged) for use in version.segments]
        omitted = self._omitted(version, damaged)
        shards = None
        if omitted is not None:
            shards = {
                segment.id: list(listed_shards(segment.shards, omitted))
                for segment in segments
                if segment.shards is not None
            }
        complete = all(each.document and each.shards is not None for each in segments)
        if shards is not None and complete:
            for path, message in version_problems(version, segments, omitted or {}, shards):
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

    def _segment(self, version: VersionDocument, id_: str, damaged: set[str]) -> SegmentFacts:
        """Read a segment's facts, from version.json if its own document is damaged."""
        key = layout.segment_key(id_)
        document = self.document(SegmentDocument, key)
        if document is not None and not self._has_known_format(document):
            document = None
        files = tuple(
            file for file in version.files if file.path.startswith(layout.index_prefix(id_))
        )
        if document is not None and document.files != files:
            message = "it names other files than version.json does"
            self.note(key, "content", "damage.manifest", message)
        facts = SegmentFacts(id_, document, files, frozenset(damaged))
        rows = facts.file("rows")
        if rows is not None:
            try:
                facts.shards = read_shards(self.root, rows)
            except DamageError as error:
                self.note(rows.path, "manifest", error.code, error.message)
                facts.damaged |= {rows.path}
        sources = facts.file("sources")
        problem = sources_problem(self.root, rows, sources) if facts.shards and sources else ""
        if rows is not None and problem:
            self.note(rows.path, "content", "damage.manifest", problem)
        use = next(use for use in version.segments if use.id == id_)
        if use.cache:
            key = layout.cache_key(id_, use.cache)
            facts.cache = self.document(CacheDocument, key)
        return facts

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
        self, version: VersionDocument, segments: list[SegmentFacts]
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
    segments: Sequence[SegmentFacts],
    listed: Mapping[str, Sequence[Shard]] | None,
    infos: Mapping[str, ObjectInfo],
) -> tuple[list[VerifyBatch], int, int]:
    """Divide the files to read: all, or a seeded choice, and files that the listing proves damaged.

    Returns:
        The batches, each of about ``runner.batch_bytes``, or one cache file; the number of files
        of shards and caches of the version, and their bytes.
    """
    shards = {segment.id: _listed(segment, listed) for segment in segments}
    every = [shard for id_ in shards for shard in shards[id_]]
    splits = version.cache.splits.values() if version.cache else ()
    caches: list[CacheFile] = [file for split in splits for file in split]
    wanted = chosen(job, ((shard.split, shard.files[0].path) for shard in every))
    wanted |= chosen(job, (("", file.path) for file in caches))

    def is_due(files: Sequence[StoredFile]) -> bool:
        return files[0].path in wanted or not all(
            file.path in infos and infos[file.path].size_bytes == file.bytes for file in files
        )

    batches: list[VerifyBatch] = []
    for segment in segments:
        empty = VerifyBatch(
            segment.id,
            segment.document.shape.use if segment.document else None,
            segment.file("rows"),
            segment.file("sources"),
            len(version.classes),
        )
        due = [shard for shard in shards[segment.id] if is_due(shard.published)]
        batches += _shard_batches(job.cluster.runner.batch_bytes, empty, due)
        for cache in caches:
            batch = replace(empty, cache=cache)
            if cache.segment == segment.id and is_due(batch.published):
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


def _listed(segment: SegmentFacts, listed: Mapping[str, Sequence[Shard]] | None) -> list[Shard]:
    """Return the shards of a segment that the version lists; all if the list is not known."""
    shards = segment.shards or []
    paths = {shard.files[0].path for shard in (listed or {}).get(segment.id, shards)}
    return [shard for shard in shards if shard.files[0].path in paths]


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
