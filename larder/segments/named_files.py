"""The contents of a version: its shards, and the files that it names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from larder.manifest.sealed import StoredFile
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import VersionDocument
from larder.versions.index import Shard, listed_shards, read_shards
from larder.versions.omitted import Omitted


def read_listed(
    root: Store, files: Iterable[StoredFile], omitted: Mapping[tuple[str, str], Omitted]
) -> Iterator[Shard]:
    """Yield the listed shards of segments, in order, given the segments' files; see
    `listed_shards`.
    """
    for file in files:
        if file.role == "rows":
            yield from listed_shards(read_shards(root, file), omitted)


def named_by_document(version: VersionDocument) -> dict[str, int | None]:
    """Return the length of each file that version.json names, by path; None for documents.

    Nothing is read.
    """
    caches = version.cache.splits.values() if version.cache else ()
    named: dict[str, int | None] = {layout.version_key(version.id): None}
    for use in version.segments:
        named[layout.segment_key(use.id)] = None
        if use.cache:
            named[layout.cache_key(use.id, use.cache)] = None
    named |= {file.path: file.bytes for file in version.files}
    return named | {file.path: file.bytes for file in chain.from_iterable(caches)}


def segment_files(
    root: Store, files: Iterable[StoredFile], omitted: Mapping[tuple[str, str], Omitted]
) -> Iterator[StoredFile]:
    """Yield the files of the listed shards of segments, with their indexes for other readers."""
    for shard in read_listed(root, files, omitted):
        yield from shard.published
