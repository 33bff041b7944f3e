"""The step that reads a version's documents and manifests again, and lists what is there.

What is small is always read completely: tags, version.json, the documents of segments and caches,
manifests and lists. What they say of each other is computed again. Shards and cache files are left
to `larder.pipeline.verifying_batch`, in batches.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from larder.errors import ConfigError, DamageError, NotFoundError
from larder.manifest.digest import canonical_json, sha256_hex
from larder.manifest.schemas import INDEXES, SHARDS, SKIPPED
from larder.pipeline import manifests
from larder.pipeline.digests import read_digest
from larder.pipeline.findings import Finding, Role
from larder.pipeline.job import ManifestRef, listed
from larder.pipeline.listed import ListedShard, listed_shards
from larder.pipeline.manifests import fetched, read_ref
from larder.pipeline.verifying_batches import batches_of
from larder.pipeline.verifying_facts import (
    SegmentFacts,
    segment_problems,
    version_problems,
)
from larder.pipeline.verifying_foreign import foreign_files
from larder.pipeline.verifying_job import Inspected, VerifyJob, open_verified
from larder.progress import Progress
from larder.shards.indexes import IndexFile
from larder.shards.inspected import MISSING
from larder.store.base import ObjectInfo, Store
from larder.versions import layout
from larder.versions.documents import (
    CacheDocument,
    FileFacts,
    SegmentDocument,
    VersionDocument,
    parse_document,
    unseal,
)
from larder.versions.omitted import Omitted, read_omitted
from larder.versions.publish import read_optional

__all__ = ["inspect_version", "is_canonical"]

_ID_DIGITS = frozenset("0123456789abcdef")


def inspect_version(job: VerifyJob, *, progress: Progress) -> tuple[Inspected, tuple[Finding, ...]]:
    """Check everything that is small, and divide the rest into batches.

    Args:
        job: The verification.
        progress: Reports progress of stage ``inspect``.

    Returns:
        What is left to read, and what was found.

    Raises:
        ConfigError: ``version.missing``: there is no such version or tag, nor a damaged one.
        StoreError: The storage refuses access.
    """
    progress.start("inspect")
    manifests.forget()  # read again what this process has read before
    inspection = _Inspection(job, open_verified(job), progress)
    inspected = inspection.inspect()
    progress.finish("inspect")
    return inspected, tuple(inspection.findings)


def is_canonical(data: bytes) -> bool:
    """Whether a document is written as Larder writes it, to the byte; it has to be sealed."""
    return canonical_json(json.loads(data)) + b"\n" == data


@dataclass
class _Inspection:
    """One inspection of a version."""

    job: VerifyJob
    root: Store
    progress: Progress
    findings: list[Finding] = field(default_factory=list)

    def inspect(self) -> Inspected:
        """Everything, from the tags to the listing."""
        tags = self._tags()
        id_ = self._version_id(tags)
        if not id_:
            return Inspected(None, "")
        version = self._document(VersionDocument, layout.version_key(id_))
        if version is None or not self._is_named(version, id_):
            return Inspected(None, id_)
        return self._inspect_version(version)

    def _found(self, path: str, role: Role, code: str, message: str, **more: Any) -> None:
        self.findings.append(Finding(path, role, code, message, **more))

    def _tags(self) -> dict[str, str]:
        """By tag, the version that it names; empty if its document is damaged."""
        found = {}
        prefix = layout.tag_key("").removesuffix(".json")
        for info in listed(self.root, prefix):
            name = info.key.removeprefix(prefix).removesuffix(".json")
            plain = self._unsealed(info.key, "tag")
            version = plain.get("version") if plain else None
            found[name] = version if isinstance(version, str) else ""
            if plain and not found[name]:
                self._found(info.key, "tag", "damage.manifest", "it names no version")
            elif version and read_optional(self.root, layout.version_key(version)) is None:
                message = f"it names version {version}, which has no version.json"
                self._found(info.key, "content", "damage.manifest", message)
        return found

    def _unsealed(self, key: str, role: Role) -> dict[str, Any] | None:
        data = read_optional(self.root, key)
        self.progress.advance("inspect", objects=1, bytes=len(data or b""))
        if data is None:
            self._found(key, role, "damage.size", MISSING)
            return None
        sha256 = sha256_hex(data)
        try:
            plain = unseal(data, key)
        except DamageError as error:
            self._found(key, role, error.code, error.message, sha256=sha256)
            return None
        if not is_canonical(data):
            message = "the document is not written as it was published"
            self._found(key, role, "damage.digest", message, sha256=sha256)
        return plain

    def _document(self, kind: Any, key: str) -> Any:
        plain = self._unsealed(key, "document")
        if plain is None:
            return None
        try:
            return parse_document(kind, bytes(self.root.get(key)), key)
        except DamageError as error:
            self._found(key, "document", error.code, error.message)
            return None

    def _is_named(self, document: Any, id_: str) -> bool:
        """Whether a document is the one of its path, of this dataset."""
        kind = type(document)
        own = {SegmentDocument: layout.segment_key, VersionDocument: layout.version_key}
        if (document.id, document.dataset) == (id_, self.job.dataset.name):
            return True
        key = own[kind](id_)
        message = f"it is the document of {document.id} of dataset {document.dataset}"
        self._found(key, "document", "damage.manifest", message)
        return False

    def _version_id(self, tags: dict[str, str]) -> str:
        asked = self.job.version
        if len(asked) == 32 and set(asked) <= _ID_DIGITS:
            if not any(True for _ in listed(self.root, layout.version_prefix(asked))):
                raise self._missing(asked, tags)
            return asked
        if tags.get(asked):
            return tags[asked]
        only = {info.key.split("/")[1] for info in listed(self.root, "versions/")}
        if asked not in tags and (asked != "latest" or not only):
            raise self._missing(asked, tags)
        if asked not in tags:
            self._found(layout.tag_key(asked), "tag", "damage.size", MISSING)
        return only.pop() if len(only) == 1 else ""

    def _missing(self, asked: str, tags: dict[str, str]) -> ConfigError:
        hint = "prepare it first"
        if tags:
            hint = f"the tags are {', '.join(sorted(tags))}; or give the ID of a version"
        message = f"there is no version or tag {asked!r}"
        return ConfigError("version.missing", message, where=self.root.url, hint=hint)

    def _inspect_version(self, version: VersionDocument) -> Inspected:
        damaged = self._files(version.files)
        segments = [self._segment(version, use.id, damaged) for use in version.segments]
        self._skipped(segments)
        omitted = self._omitted(version, damaged)
        shards = self._listed(segments, omitted) if omitted is not None else None
        if shards is not None and all(segment.complete for segment in segments):
            for path, message in version_problems(version, segments, omitted or {}, shards):
                self._found(path, "content", "damage.manifest", message)
        there = self._there(version, segments)
        batches, files, size_bytes = batches_of(self.job, version, segments, shards, there)
        return Inspected(version, version.id, tuple(batches), files, size_bytes)

    def _files(self, files: tuple[FileFacts, ...]) -> set[str]:
        """Compare files with their digests; returns the paths of those that differ."""
        damaged = set()
        for file in files:
            try:
                with fetched(self.root, ManifestRef.of(file)):
                    self.progress.advance("inspect", objects=1, bytes=file.bytes)
            except (DamageError, NotFoundError):
                damaged.add(file.path)
                self._file_finding(file)
        return damaged

    def _file_finding(self, file: FileFacts) -> None:
        try:
            size_bytes, sha256 = read_digest(self.root, file.path)
        except NotFoundError:
            self._found(file.path, "manifest", "damage.size", MISSING)
            return
        code, message = "damage.digest", "the bytes do not match the digest"
        if size_bytes != file.bytes:
            code = "damage.size"
            message = f"the file has {size_bytes:,} bytes instead of {file.bytes:,}"
        self._found(file.path, "manifest", code, message, sha256=sha256)

    def _segment(self, version: VersionDocument, id_: str, damaged: set[str]) -> SegmentFacts:
        """What is known of a segment; from version.json if its own document is damaged."""
        document = self._document(SegmentDocument, layout.segment_key(id_))
        if document is not None and not self._is_named(document, id_):
            document = None
        own = tuple(
            file for file in version.files if file.path.startswith(layout.index_prefix(id_))
        )
        if document is not None and document.files != own:
            message = "it names other files than version.json does"
            path = layout.segment_key(id_)
            self._found(path, "content", "damage.manifest", message)
        facts = SegmentFacts(id_, document, own, frozenset(damaged))
        shards = facts.file("shards")
        if shards is not None:
            try:
                facts.shards = [
                    row
                    for batch in read_ref(self.root, ManifestRef.of(shards), SHARDS)
                    for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)
                ]
            except DamageError as error:
                self._found(shards.path, "manifest", error.code, error.message)
                facts.damaged |= {shards.path}
        self._indexes(facts)
        for path, message in segment_problems(self.root, facts):
            self._found(path, "content", "damage.manifest", message)
        use = next(use for use in version.segments if use.id == id_)
        if use.cache:
            facts.cache = self._cache(id_, use.cache)
        return facts

    def _indexes(self, facts: SegmentFacts) -> None:
        """The index files for other readers."""
        manifest = facts.file("indexes")
        names = ["split", "shard", "kind", "name", "bytes", "sha256"]
        if manifest is None:
            return
        for batch in read_ref(self.root, ManifestRef.of(manifest), INDEXES, columns=names):
            for split, shard, *file in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                own = facts.indexes.get((split, shard), ())
                facts.indexes[split, shard] = (*own, IndexFile(*file))

    def _cache(self, segment: str, cache: str) -> CacheDocument | None:
        key = layout.cache_key(segment, cache)
        document: CacheDocument | None = self._document(CacheDocument, key)
        if document is None:
            return None
        named = (document.dataset, document.segment, document.id)
        if named != (self.job.dataset.name, segment, cache):
            message = f"it is the document of cache {document.id} of segment {document.segment}"
            self._found(key, "document", "damage.manifest", message)
            return None
        return document

    def _skipped(self, segments: list[SegmentFacts]) -> None:
        for facts in segments:
            skipped = facts.file("skipped")
            if skipped is None or facts.document is None:
                continue
            rows = read_ref(self.root, ManifestRef.of(skipped), SKIPPED, columns=["split"])
            count = sum(batch.num_rows for batch in rows)
            if count != facts.document.skipped:
                message = f"it counts {facts.document.skipped:,} skipped samples, not {count:,}"
                path = layout.segment_key(facts.id)
                self._found(path, "content", "damage.manifest", message)

    def _omitted(
        self, version: VersionDocument, damaged: set[str]
    ) -> dict[tuple[str, str], Omitted] | None:
        if any(file.path in damaged for file in version.files_of("omitted")):
            return None
        try:
            return read_omitted(self.root, version)
        except DamageError as error:
            path = layout.version_key(version.id)
            self._found(path, "content", error.code, error.message)
            return None

    def _listed(
        self, segments: list[SegmentFacts], omitted: dict[tuple[str, str], Omitted] | None
    ) -> dict[str, list[ListedShard]]:
        """By segment, the shards that the version lists, as far as the manifests can be read."""
        found = {}
        for facts in segments:
            shards = facts.file("shards")
            if shards is not None:
                rows = read_ref(self.root, ManifestRef.of(shards), SHARDS)
                found[facts.id] = list(listed_shards(rows, omitted or {}))
        return found

    def _there(
        self, version: VersionDocument, segments: list[SegmentFacts]
    ) -> dict[str, ObjectInfo]:
        """What is below the prefixes of the version; what nothing names is found on the way."""
        there: dict[str, ObjectInfo] = {}
        for info, foreign in foreign_files(self.root, version, segments):
            there[info.key] = info
            if foreign:
                self._found(info.key, "foreign", "damage.foreign", foreign)
            self.progress.advance("inspect")
        return there
