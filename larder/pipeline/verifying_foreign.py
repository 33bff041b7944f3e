"""Lists what is below the prefixes of a version, and says what nothing names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from larder.errors import DamageError
from larder.pipeline.job import listed
from larder.pipeline.verifying_facts import SegmentFacts
from larder.store.base import ObjectInfo, Store
from larder.versions import layout
from larder.versions.documents import VersionDocument
from larder.versions.publish import read_cache

__all__ = ["foreign_files"]

_LAST = "\U0010ffff"

_UNNAMED = "nothing names this file: move it elsewhere, or delete it"


def foreign_files(
    root: Store, version: VersionDocument, segments: Sequence[SegmentFacts]
) -> Iterator[tuple[ObjectInfo, str]]:
    """All objects below the prefixes of a version, and why each of them is foreign, if it is.

    Receipts and other work are neither listed nor foreign: there may be more of them than of all
    else. Nor are unfinished caches, whose builder may be at work.

    Args:
        root: The dataset's root.
        version: The version.
        segments: Its segments.
    """
    prefix = layout.version_prefix(version.id)
    named = {layout.version_key(version.id), *(file.path for file in version.files)}
    for info in listed(root, prefix):
        yield info, "" if info.key in named else _UNNAMED
    for segment in segments:
        yield from _of_segment(root, version, segment)


def _of_segment(
    root: Store, version: VersionDocument, segment: SegmentFacts
) -> Iterator[tuple[ObjectInfo, str]]:
    shards, caches = layout.shards_prefix(segment.id), f"{layout.segment_prefix(segment.id)}caches/"
    named: set[str] = {layout.segment_key(segment.id), *(file.path for file in segment.files)}
    named |= {layout.shard_key(segment.id, row[1], row[2]) for row in segment.shards or ()}
    indexes = segment.file("indexes")
    named |= {
        layout.reader_index_key(segment.id, file.kind, split, file.name)
        for (split, _), files in segment.indexes.items()
        for file in files
    }
    index_prefix = layout.index_prefix(segment.id)
    unknown = any(file.role == "indexes" for file in segment.files) and indexes is None
    splits = version.cache.splits.values() if version.cache else ()
    own_files = [file.path for files in splits for file in files]
    others: dict[str, Collection[str] | None] = {}
    for info in _listed(root, segment.id):
        if info.key.startswith(shards) and segment.shards is None:
            yield info, ""  # not known: their manifest is damaged
        elif unknown and info.key.startswith(index_prefix) and info.key.count("/") > 3:
            yield info, ""
        elif info.key.startswith(caches):
            cache = layout.cache_of(info.key)
            name = cache[1] if cache else ""
            if name not in others:
                others[name] = _cache_files(root, segment, name, own_files)
            known = others[name]
            yield info, "" if known is None or info.key in known else _UNNAMED
        else:
            yield info, "" if info.key in named else _UNNAMED


def _cache_files(
    root: Store, segment: SegmentFacts, cache: str, own: Collection[str]
) -> Collection[str] | None:
    """The files of a cache; None if that is not known, because it is unfinished or damaged."""
    try:
        document = read_cache(root, segment.id, cache)
    except DamageError:
        document = None
    if document is None:
        return None
    files = {file.path for file in document.files.values()}
    return {layout.cache_key(segment.id, cache), *files, *own}


def _listed(root: Store, segment: str) -> Iterator[ObjectInfo]:
    """What is below the prefix of a segment, except its work."""
    prefix, work = layout.segment_prefix(segment), layout.work_prefix(segment)
    for info in listed(root, prefix):
        if info.key.startswith(work):
            break
        yield info
    else:
        return
    for page in root.list(prefix, start_after=f"{work}{_LAST}"):
        yield from page
