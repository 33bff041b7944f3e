"""What a version names: the one answer for whoever checks, repairs or keeps its files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from larder.manifest.schemas import INDEXES, SHARDS
from larder.pipeline.job import ManifestRef
from larder.pipeline.listed import listed_shards
from larder.pipeline.manifests import read_ref
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import CacheFile, FileFacts, VersionDocument
from larder.versions.omitted import Omitted, read_omitted


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file of a version, with its path below the dataset's root.

    A document, which no other one describes, has no ``bytes`` and an empty ``sha256``. ``role`` is
    ``document``, ``cache``, ``shard``, ``index`` (of a shard, for other readers), or one of
    `larder.versions.documents.ROLES`; ``segment`` is empty for a file of the version itself.
    """

    path: str
    bytes: int | None
    sha256: str
    role: str
    segment: str = ""


def named_files(root: Store, version: VersionDocument) -> Iterator[NamedFile]:
    """Every file of a version, of shards those that it lists."""
    yield from named_by_document(version)
    yield from segment_files(root, version.files, read_omitted(root, version))


def named_by_document(version: VersionDocument) -> Iterator[NamedFile]:
    """The files that version.json names itself, and the documents; nothing is read."""
    yield NamedFile(layout.version_key(version.id), None, "", "document")
    for use in version.segments:
        yield NamedFile(layout.segment_key(use.id), None, "", "document", use.id)
        if use.cache:
            yield NamedFile(layout.cache_key(use.id, use.cache), None, "", "document", use.id)
    yield from map(_of_facts, version.files)
    caches = version.cache.splits.values() if version.cache else ()
    yield from map(_of_cache, chain.from_iterable(caches))


def segment_files(
    root: Store,
    files: Iterable[FileFacts],
    omitted: Mapping[tuple[str, str], Omitted],
) -> Iterator[NamedFile]:
    """The shards of segments, and their indexes for other readers."""
    files = tuple(files)
    for manifest in (ManifestRef.of(file) for file in files if file.role == "shards"):
        for shard in listed_shards(read_ref(root, manifest, SHARDS), omitted):
            for segment, split, name, size_bytes, _, sha256 in shard.files:
                path = layout.shard_key(segment, split, name)
                yield NamedFile(path, size_bytes, sha256, "shard", segment)
    names = ["segment", "kind", "split", "name", "bytes", "sha256"]
    for manifest in (ManifestRef.of(file) for file in files if file.role == "indexes"):
        for batch in read_ref(root, manifest, INDEXES, columns=names):
            for *place, size_bytes, sha256 in zip(
                *(column.to_pylist() for column in batch.columns), strict=True
            ):
                path = layout.reader_index_key(*place)
                yield NamedFile(path, size_bytes, sha256, "index", place[0])


def _of_facts(file: FileFacts) -> NamedFile:
    return NamedFile(file.path, file.bytes, file.sha256, file.role, _segment_of(file.path))


def _of_cache(file: CacheFile) -> NamedFile:
    return NamedFile(file.path, file.bytes, file.sha256, "cache", file.segment)


def _segment_of(path: str) -> str:
    return path.split("/")[1] if path.startswith(layout.segments_prefix()) else ""
