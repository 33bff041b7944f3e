"""Lists the objects below the prefixes of a version, and finds objects that nothing names.

Files whose bytes may differ from run to run have their digest in the name. So a file that another
run of the same inputs left, or has just written, proves itself: it is unused, and not foreign.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple

from larder.errors import DamageError, LarderError, NotFoundError
from larder.segments.named_files import named_by_document
from larder.store.base import ObjectInfo, Store
from larder.store.own_files import listed, listed_without, read_digest
from larder.verify.figure_check import SegmentFacts
from larder.verify.findings import is_broken, readable
from larder.versions import layout
from larder.versions.documents import CacheDocument, VersionDocument, parse_document

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


class ListedObject(NamedTuple):
    """An object below the prefixes of a version.

    ``foreign``: nothing names it. ``unused``: nothing names it, but Larder wrote or moved it there.
    """

    info: ObjectInfo
    kind: Literal["named", "foreign", "unused"] = "named"
    message: str = ""


def objects_of(
    root: Store, version: VersionDocument, segments: Sequence[SegmentFacts]
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


def _of_segment(root: Store, segment: SegmentFacts, named: set[str]) -> Iterator[ListedObject]:
    for shard in segment.shards or ():
        named |= {file.path for file in shard.published}
    index = layout.index_prefix(segment.id)
    caches: dict[str, Collection[str] | None] = {}
    prefix, work = layout.segment_prefix(segment.id), layout.work_prefix(segment.id)
    for info in listed_without(root, prefix, work):
        cache = layout.cache_of(info.key)
        if cache and cache[1] not in caches:
            caches[cache[1]] = _cache_files(root, *cache)
        files = caches[cache[1]] if cache else ()
        of_shard = info.key.startswith(layout.shards_prefix(segment.id)) or (
            info.key.startswith(index) and "/" in info.key.removeprefix(index)
        )
        unknown = of_shard and segment.shards is None  # as the index of the segment is damaged
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
