"""The JSON documents of a dataset: segment.json, version.json and tags.

They are canonical JSON (sorted keys, no white space, UTF-8) with the sha256 of themselves under
``self_sha256``, computed without that key. They contain no times and no absolute URLs, so that the
same inputs and history give the same bytes everywhere. Paths are relative to the dataset's root.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from larder.errors import DamageError
from larder.manifest.digest import canonical_json

__all__ = [
    "MAKE_AGAIN",
    "CacheFacts",
    "CacheFile",
    "FileFacts",
    "SegmentDocument",
    "SegmentUse",
    "SplitFacts",
    "VersionDocument",
    "parse_document",
    "seal",
    "unseal",
]

SEGMENT_FORMAT = "larder-segment-1"
VERSION_FORMAT = "larder-version-1"

MAKE_AGAIN = "restore it, or delete it and prepare the dataset again"
"""The hint for damage to any file except source objects: all can be made again from the source."""


@dataclass(frozen=True, slots=True)
class SplitFacts:
    """One split: counts, bytes of its shards, and brace patterns of their paths."""

    samples: int
    shards: int
    bytes: int
    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A published file other than a shard: its path below the dataset's root and its digest.

    ``role`` is ``samples``, ``shards``, ``objects``, ``mirror`` or ``cache``.
    """

    path: str
    bytes: int
    sha256: str
    role: str


@dataclass(frozen=True, slots=True)
class CacheFile:
    """The LMDB file of one split.

    Attributes:
        path: Relative to the dataset's root.
        bytes: Length of the LMDB file.
        sha256: Digest of the LMDB file; depends on the page size of the machine that built it.
        digest: Digest of the schema and the ordered records; depends only on the content.
        records: Number of records.
    """

    path: str
    bytes: int
    sha256: str
    digest: str
    records: int


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """The cache of a segment or version: ``kind`` is ``encoded`` or ``decoded``."""

    kind: str
    splits: Mapping[str, tuple[CacheFile, ...]]

    @property
    def records(self) -> int:
        """Number of records in all splits."""
        return sum(file.records for files in self.splits.values() for file in files)

    @property
    def bytes(self) -> int:
        """Total size of the files of all splits."""
        return sum(file.bytes for files in self.splits.values() for file in files)


@dataclass(frozen=True, slots=True)
class SegmentDocument:
    """segment.json: an immutable, complete set of shards, indexes and cache files.

    ``shards`` is the name of their format.
    """

    dataset: str
    id: str
    shards: str
    splits: Mapping[str, SplitFacts]
    classes: tuple[str, ...]
    files: tuple[FileFacts, ...]
    cache: CacheFacts | None
    skipped: int = 0
    format: str = SEGMENT_FORMAT


@dataclass(frozen=True, slots=True)
class SegmentUse:
    """A segment as part of a version, less the samples it omits."""

    id: str
    omitted: int = 0


@dataclass(frozen=True, slots=True)
class VersionDocument:
    """version.json: the published, immutable state of a dataset that training names.

    Attributes:
        id: 32 hex digits, a function of the segments.
        digest: The content digest.
        inputs: The inputs digest of the run that published it.
        skipped: Keys and samples that were left out because the dataset file says ``skip``.
    """

    dataset: str
    id: str
    digest: str
    inputs: str
    segments: tuple[SegmentUse, ...]
    splits: Mapping[str, SplitFacts]
    classes: tuple[str, ...]
    files: tuple[FileFacts, ...]
    cache: CacheFacts | None
    skipped: int = 0
    format: str = VERSION_FORMAT

    def file(self, role: str) -> FileFacts:
        """The file with that role.

        Raises:
            DamageError: ``damage.manifest``: there is no such file.
        """
        for entry in self.files:
            if entry.role == role:
                return entry
        raise DamageError("damage.manifest", f"no file has the role {role!r}", where="version.json")


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def seal(document: Any) -> bytes:
    """The bytes of a document (dataclass or mapping), including its own digest."""
    plain = _plain(document)
    digest = hashlib.sha256(canonical_json(plain)).hexdigest()
    return canonical_json({**plain, "self_sha256": digest}) + b"\n"


def unseal(data: bytes, where: str) -> dict[str, Any]:
    """The mapping that was sealed.

    Raises:
        DamageError: ``damage.manifest`` if it is not such a document, ``damage.digest`` if its
            bytes are not those that were written.
    """
    try:
        plain = json.loads(data)
        digest = plain.pop("self_sha256")
    except (ValueError, KeyError, AttributeError, TypeError):
        message = "not a Larder document"
        raise DamageError("damage.manifest", message, where=where, hint=MAKE_AGAIN) from None
    if hashlib.sha256(canonical_json(plain)).hexdigest() != digest:
        message = "the document does not match its digest"
        raise DamageError("damage.digest", message, where=where, hint=MAKE_AGAIN)
    return dict(plain)


Document = TypeVar("Document", SegmentDocument, VersionDocument)


def parse_document(kind: type[Document], data: bytes, where: str) -> Document:
    """Read segment.json or version.json.

    Args:
        kind: `SegmentDocument` or `VersionDocument`.
        data: The bytes of the file.
        where: Its URL, for errors.

    Raises:
        DamageError: ``damage.digest``, or ``damage.manifest`` for an unknown format or an invalid
            field.
    """
    plain = unseal(data, where)
    expected = SEGMENT_FORMAT if kind is SegmentDocument else VERSION_FORMAT
    if plain.get("format") != expected:
        message = f"format {plain.get('format')!r}; this Larder reads {expected}"
        raise DamageError("damage.manifest", message, where=where, hint="use a newer Larder")
    try:
        plain["splits"] = {
            name: SplitFacts(**{**facts, "patterns": tuple(facts["patterns"])})
            for name, facts in plain["splits"].items()
        }
        plain["classes"] = tuple(plain["classes"])
        plain["files"] = tuple(FileFacts(**entry) for entry in plain["files"])
        plain["cache"] = _cache(plain["cache"])
        if kind is VersionDocument:
            plain["segments"] = tuple(SegmentUse(**entry) for entry in plain["segments"])
        return kind(**plain)
    except (KeyError, TypeError, AttributeError) as error:
        message = f"invalid field: {error}"
        raise DamageError("damage.manifest", message, where=where, hint=MAKE_AGAIN) from None


def _cache(plain: dict[str, Any] | None) -> CacheFacts | None:
    if plain is None:
        return None
    splits = {
        name: tuple(CacheFile(**file) for file in files) for name, files in plain["splits"].items()
    }
    return CacheFacts(kind=plain["kind"], splits=splits)
