"""The step that reads a version's documents and manifests again, and lists what is there.

What is small is always read completely: tags, version.json, the documents of segments and caches,
manifests and lists. What they say of each other is computed again. Shards and cache files are left
to `larder.pipeline.verifying_batch`, in batches.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from larder.errors import (
    ConfigError,
    DamageError,
    LarderError,
    NotFoundError,
    ObjectError,
    StoreError,
)
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
from larder.pipeline.verifying_job import (
    Inspected,
    Unlisted,
    Unused,
    VerifyJob,
    is_broken,
    open_verified,
)
from larder.progress import Progress
from larder.shards.formats import shard_format
from larder.shards.indexes import IndexFile
from larder.shards.inspected import MISSING
from larder.store.base import ObjectInfo, Store
from larder.versions import layout
from larder.versions.documents import (
    MAKE_AGAIN,
    CacheDocument,
    FileFacts,
    SegmentDocument,
    VersionDocument,
    parse_document,
    seal,
    unseal,
)
from larder.versions.omitted import Omitted, read_omitted
from larder.versions.publish import own_file_errors
from larder.versions.tags import TAG

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
    unlisted = Unlisted()
    inspection = _Inspection(job, open_verified(job, unlisted), unlisted.found, progress)
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
    unlisted: dict[str, ObjectError]
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
            if "/" in name or info.key != layout.tag_key(name):
                self._found(
                    info.key,
                    "foreign",
                    "damage.foreign",
                    "it is not a tag: move it elsewhere, or delete it",
                )
                continue
            plain = self._unsealed(info.key, "tag")
            version = plain.get("version") if plain else None
            found[name] = str(version) if _is_id(version) else ""
            if plain and not found[name]:
                self._found(info.key, "tag", "damage.manifest", "it names no version")
            elif plain and not self._exists(layout.version_key(found[name])):
                message = f"it names version {version}, which has no version.json"
                self._found(info.key, "content", "damage.manifest", message)
        for path in self.unlisted:
            name = path.removeprefix(prefix).removesuffix(".json")
            if path.startswith(prefix) and path == layout.tag_key(name):
                found[name] = ""
                self._found(path, "tag", "damage.size", self._missing_file(path))
        return found

    def _exists(self, key: str) -> bool:
        try:
            self.root.head(key)
        except NotFoundError:
            return False
        except LarderError as error:
            if not is_broken(self.root, error):
                raise
        return True

    def _missing_file(self, key: str) -> str:
        why = self.unlisted.get(key)
        return f"{MISSING}: {why.message}" if why else MISSING

    def _read(self, key: str, role: Role) -> bytes | None:
        """A document; None, with a finding, if it cannot be read."""
        data = None
        try:
            data = bytes(self.root.get(key))
        except NotFoundError:
            self._found(key, role, "damage.size", self._missing_file(key))
        except ObjectError as error:
            if not is_broken(self.root, error):
                with own_file_errors():
                    raise
            self._found(key, role, "damage.size", _unreadable(error))
        self.progress.advance("inspect", objects=1, bytes=len(data or b""))
        return data

    def _unsealed(self, key: str, role: Role) -> dict[str, Any] | None:
        data = self._read(key, role)
        if data is None:
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
            return parse_document(kind, seal(plain), key)
        except DamageError as error:
            hint = "" if error.hint == MAKE_AGAIN else f"; {error.hint}"
            self._found(key, "document", error.code, f"{error.message}{hint}")
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
        if _is_id(asked):
            if not any(True for _ in listed(self.root, layout.version_prefix(asked))):
                raise self._missing(asked, tags)
            if TAG not in tags:
                self._found(layout.tag_key(TAG), "tag", "damage.size", MISSING)
            return asked
        if tags.get(asked):
            return tags[asked]
        only = {info.key.split("/")[1] for info in listed(self.root, "versions/")}
        if asked not in tags and (asked != TAG or not only):
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
        there, unused = self._there(version, segments)
        batches, files, size_bytes = batches_of(self.job, version, segments, shards, there)
        return Inspected(version, version.id, tuple(batches), files, size_bytes, unused)

    def _files(self, files: tuple[FileFacts, ...]) -> set[str]:
        """Compare files with their digests; returns the paths of those that differ."""
        damaged = set()
        for file in files:
            try:
                with fetched(self.root, ManifestRef.of(file)):
                    self.progress.advance("inspect", objects=1, bytes=file.bytes)
            except (DamageError, NotFoundError, StoreError) as error:
                if isinstance(error, StoreError) and not _is_of_file(self.root, error):
                    raise
                damaged.add(file.path)
                self._file_finding(file)
        return damaged

    def _file_finding(self, file: FileFacts) -> None:
        try:
            size_bytes, sha256 = read_digest(self.root, file.path)
        except NotFoundError:
            message = self._missing_file(file.path)
            self._found(file.path, "manifest", "damage.size", message)
            return
        except ObjectError as error:
            if not is_broken(self.root, error):
                raise
            self._found(file.path, "manifest", "damage.size", _unreadable(error))
            return
        code, message = "damage.digest", "the bytes do not match the digest"
        if size_bytes != file.bytes:
            code = "damage.size"
            message = f"the file has {size_bytes:,} bytes instead of {file.bytes:,}"
        self._found(file.path, "manifest", code, message, sha256=sha256)

    def _segment(self, version: VersionDocument, id_: str, damaged: set[str]) -> SegmentFacts:
        """What is known of a segment; from version.json if its own document is damaged."""
        document = self._document(SegmentDocument, layout.segment_key(id_))
        if document is not None and not (
            self._is_named(document, id_) and self._has_known_format(document)
        ):
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

    def _has_known_format(self, document: SegmentDocument) -> bool:
        try:
            shard_format(*document.shape.use)
        except ConfigError as error:
            message = f"{error.message}; use a newer Larder"
            key = layout.segment_key(document.id)
            self._found(key, "document", "damage.manifest", message)
            return False
        return True

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
    ) -> tuple[dict[str, ObjectInfo], Unused]:
        """What is below the prefixes of the version; what nothing names is found on the way."""
        there: dict[str, ObjectInfo] = {}
        unused = Unused()
        for info, kind, message in foreign_files(self.root, version, segments, self.unlisted):
            there[info.key] = info
            if kind == "foreign":
                self._found(info.key, "foreign", "damage.foreign", message)
            elif kind == "unused":
                unused = unused.plus(info.key, info.size_bytes)
            self.progress.advance("inspect")
        return there, unused


def _is_id(version: object) -> bool:
    return isinstance(version, str) and len(version) == 32 and set(version) <= _ID_DIGITS


def _is_of_file(root: Store, error: StoreError) -> bool:
    """Whether a refusal of the whole store was that of one file of a directory."""
    cause = error.__cause__
    return isinstance(cause, ObjectError) and is_broken(root, cause)


def _unreadable(error: ObjectError) -> str:
    return f"the file cannot be read completely: {error.message}"
