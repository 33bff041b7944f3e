"""The step that reads a version's documents and manifests again, and lists what is there.

What is small is always read completely: tags, version.json, the documents of segments and caches,
manifests and lists. What they say of each other is computed again. Shards and cache files are left
to `larder.verify.reading`, in batches.
"""

from __future__ import annotations

from larder.errors import ConfigError, DamageError, LarderError, NotFoundError, ObjectError
from larder.manifest.schemas import INDEXES, SHARDS
from larder.pipeline import manifests
from larder.pipeline.job import ManifestRef
from larder.pipeline.listed import listed_shards
from larder.pipeline.manifests import fetched
from larder.progress import Progress
from larder.shards.formats import shard_format
from larder.shards.indexes import IndexFile
from larder.store.base import ObjectInfo
from larder.verify.batches import batches_of
from larder.verify.documents import DocumentReader
from larder.verify.facts import SegmentFacts, segment_problems, version_problems
from larder.verify.files import compared
from larder.verify.findings import Finding
from larder.verify.foreign import files_aside, objects_of
from larder.verify.job import Inspected, Unlisted, Unused, VerifyJob, open_verified
from larder.versions import layout
from larder.versions.documents import CacheDocument, FileFacts, SegmentDocument, VersionDocument
from larder.versions.omitted import Omitted, read_omitted


def inspect_version(job: VerifyJob, *, progress: Progress) -> tuple[Inspected, tuple[Finding, ...]]:
    """Check everything that is small, and divide the rest into batches.

    Refused with ``version.missing`` if there is no such version or tag, nor a damaged one.
    """
    progress.start("inspect")
    manifests.forget()  # read again what this process has read before
    unlisted = Unlisted()
    inspection = _Inspection(job, open_verified(job, unlisted), unlisted.errors, progress)
    inspected = inspection.inspect()
    progress.finish("inspect")
    return inspected, tuple(dict.fromkeys(inspection.findings))


class _Inspection(DocumentReader):
    def inspect(self) -> Inspected:
        """Everything, from the tags to the listing."""
        for path, message in files_aside(self.root):
            self.note(path, "aside", "damage.foreign", message)
        id_ = self.version_id(self.tags())
        if not id_:
            return Inspected(None, "")
        version = self.document(VersionDocument, layout.version_key(id_), id=id_)
        if version is None:
            return Inspected(None, id_)
        return self._inspect_version(version)

    def _inspect_version(self, version: VersionDocument) -> Inspected:
        damaged = {file.path for file in version.files if not self._is_whole(file)}
        for file in version.files_of("omitted"):
            copy = layout.omitted_copy_key(version.id, file.sha256)
            self._is_whole(FileFacts(copy, file.bytes, file.sha256, "omitted"))
        segments = [self._segment(version, use.id, damaged) for use in version.segments]
        omitted = self._omitted(version, damaged)
        shards = None
        if omitted is not None:
            shards = {
                segment.id: list(listed_shards(segment.rows(self.root, "shards", SHARDS), omitted))
                for segment in segments
                if segment.file("shards")
            }
        complete = all(each.document and each.shards is not None for each in segments)
        if shards is not None and complete:
            for path, message in version_problems(version, segments, omitted or {}, shards):
                self.note(path, "content", "damage.manifest", message)
        infos, unused = self._objects(version, segments)
        batches, files, size_bytes = batches_of(self.job, version, segments, shards, infos)
        return Inspected(version, version.id, tuple(batches), files, size_bytes, unused)

    def _is_whole(self, file: FileFacts) -> bool:
        """Whether a file has its digest; else there is a finding."""
        try:
            if file.path.endswith(".parquet"):
                with fetched(self.root, ManifestRef.of(file)):
                    self.progress.advance("inspect", objects=1, bytes=file.bytes)
                return True
        except LarderError as error:
            if not isinstance(error, DamageError | NotFoundError) and not _is_of_file(error):
                raise
        code, message, sha256 = compared(self.root, file.path, file.bytes, file.sha256)
        if code:
            message = self.explained(file.path, message)
            self.note(file.path, "manifest", code, message, sha256)
        return not code

    def _segment(self, version: VersionDocument, id_: str, damaged: set[str]) -> SegmentFacts:
        """What is known of a segment; from version.json if its own document is damaged."""
        key = layout.segment_key(id_)
        document = self.document(SegmentDocument, key, id=id_)
        if document is not None and not self._has_known_format(document):
            document = None
        files = tuple(
            file for file in version.files if file.path.startswith(layout.index_prefix(id_))
        )
        if document is not None and document.files != files:
            message = "it names other files than version.json does"
            self.note(key, "content", "damage.manifest", message)
        facts = SegmentFacts(id_, document, files, frozenset(damaged))
        shards = facts.file("shards")
        if shards is not None:
            try:
                facts.shards = list(listed_shards(facts.rows(self.root, "shards", SHARDS), {}))
            except DamageError as error:
                self.note(shards.path, "manifest", error.code, error.message)
                facts.damaged |= {shards.path}
        names = ["split", "shard", "kind", "name", "bytes", "sha256"]
        for batch in facts.rows(self.root, "indexes", INDEXES, names):
            for split, shard, *file in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                indexes = facts.indexes.get((split, shard), ())
                facts.indexes[split, shard] = (*indexes, IndexFile(*file))
        for path, message in segment_problems(self.root, facts):
            self.note(path, "content", "damage.manifest", message)
        use = next(use for use in version.segments if use.id == id_)
        if use.cache:
            key = layout.cache_key(id_, use.cache)
            facts.cache = self.document(CacheDocument, key, id=use.cache, segment=id_)
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
        """What is below the prefixes of the version; what nothing names is found on the way."""
        infos: dict[str, ObjectInfo] = {}
        unused = Unused()
        for info, kind, message in objects_of(self.root, version, segments, self.unlisted):
            infos[info.key] = info
            if kind == "foreign":
                self.note(info.key, "foreign", "damage.foreign", message)
            elif kind == "unused":
                unused = unused.plus(info.key, info.size_bytes)
            self.progress.advance("inspect")
        return infos, unused


def _is_of_file(error: LarderError) -> bool:
    """Whether a refusal of the whole store was that of one file, as `own_file_errors` makes it."""
    return isinstance(error.__cause__, ObjectError)
