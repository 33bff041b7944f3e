"""Lists what is below the prefixes of a version, and says what nothing names.

Files whose bytes may differ from run to run have their digest in the name. So what another run of
the same inputs left, or has just written, proves itself: it is unused, and not foreign.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from larder.errors import DamageError, LarderError, NotFoundError, ObjectError
from larder.pipeline.digests import read_digest
from larder.pipeline.job import listed
from larder.pipeline.verifying_facts import SegmentFacts
from larder.pipeline.verifying_job import is_broken, readable
from larder.store.base import ObjectInfo, Store
from larder.versions import layout
from larder.versions.documents import CacheDocument, VersionDocument, parse_document

__all__ = ["There", "foreign_files"]

_LAST = "\U0010ffff"

_UNNAMED = "nothing names this file: move it elsewhere, or delete it"
_OTHER_BYTES = (
    "nothing names this file, and its bytes do not match the digest in its name: delete it"
)

_NAMED_BY_DIGEST = re.compile(
    r"segments/[^/]+/index/(samples|shards|indexes|skipped)-(?P<a>[0-9a-f]{16})\.parquet"
    r"|segments/[^/]+/caches/[^/]+/[^/]+-(?P<b>[0-9a-f]{16})\.mdb"
    r"|versions/[^/]+/manifests/(objects|skipped)-(?P<c>[0-9a-f]{16})\.parquet"
    r"|versions/[^/]+/manifests/omitted-(?P<d>[0-9a-f]{16})\.npy"
    r"|versions/[^/]+/lists/[^/]+-(?P<e>[0-9a-f]{16})\.txt"
)
"""Keys that `larder.versions.layout` makes from a digest."""


class There(NamedTuple):
    """An object below the prefixes of a version.

    Attributes:
        info: The object; of a length of -1 if it cannot be listed.
        kind: ``foreign``: nothing names it; ``unused``: the same, but Larder wrote it.
        message: What is wrong with it.
    """

    info: ObjectInfo
    kind: Literal["named", "foreign", "unused"] = "named"
    message: str = ""


def foreign_files(
    root: Store,
    version: VersionDocument,
    segments: Sequence[SegmentFacts],
    unlisted: Mapping[str, ObjectError],
) -> Iterator[There]:
    """All objects below the prefixes of a version, and which of them are foreign.

    Receipts and other work are neither listed nor foreign: there may be more of them than of all
    else. Nor are unfinished caches, whose builder may be at work.

    Args:
        root: The dataset's root.
        version: The version.
        segments: Its segments.
        unlisted: What the listings cannot return; filled as they are read.
    """
    prefix = layout.version_prefix(version.id)
    named = {layout.version_key(version.id), *(file.path for file in version.files)}
    for info in listed(root, prefix):
        yield There(info) if info.key in named else _unnamed(root, info)
    yield from _unlisted(unlisted, prefix, named)
    for segment in segments:
        yield from _of_segment(root, version, segment, unlisted)


def _of_segment(
    root: Store,
    version: VersionDocument,
    segment: SegmentFacts,
    unlisted: Mapping[str, ObjectError],
) -> Iterator[There]:
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
    own_files = {file.path for files in splits for file in files}
    others: dict[str, Collection[str] | None] = {}
    for info in _listed(root, segment.id):
        if info.key.startswith(shards) and segment.shards is None:
            yield There(info)  # not known: their manifest is damaged
        elif unknown and info.key.startswith(index_prefix) and info.key.count("/") > 3:
            yield There(info)
        elif info.key.startswith(caches):
            cache = layout.cache_of(info.key)
            name = cache[1] if cache else ""
            if name not in others:
                others[name] = _cache_files(root, segment, name, own_files)
            known = others[name]
            yield There(info) if known is None or info.key in known else _unnamed(root, info)
        else:
            yield There(info) if info.key in named else _unnamed(root, info)
    yield from _unlisted(unlisted, layout.segment_prefix(segment.id), named | own_files)


def _unnamed(root: Store, info: ObjectInfo) -> There:
    """Whether a file that nothing names is foreign, or proves itself by the digest in its name."""
    match = _NAMED_BY_DIGEST.fullmatch(info.key)
    if match is None:
        return There(info, "foreign", _UNNAMED)
    digest = next(group for group in match.groupdict().values() if group)
    try:
        _, sha256 = read_digest(root, info.key)
    except NotFoundError:
        return There(info)  # deleted in the meantime
    except LarderError as error:
        if not is_broken(root, error):
            raise
        sha256 = ""
    if sha256.startswith(digest):
        return There(info, "unused")
    return There(info, "foreign", _OTHER_BYTES)


def _unlisted(
    unlisted: Mapping[str, ObjectError], prefix: str, named: Collection[str]
) -> Iterator[There]:
    """What cannot be listed below a prefix; what is named there is found to be missing."""
    for path, error in unlisted.items():
        if path.startswith(prefix) and not path.startswith(f"{prefix}work/"):
            kept = path in named or path.endswith("/cache.json")
            info = ObjectInfo(path, -1, "", 0)
            message = f"{error.message}: {error.hint}"
            yield There(info) if kept else There(info, "foreign", message)


def _cache_files(
    root: Store, segment: SegmentFacts, cache: str, own: Collection[str]
) -> Collection[str] | None:
    """The files of a cache; None if that is not known, because it is unfinished or damaged."""
    key = layout.cache_key(segment.id, cache)
    data = readable(root, key)
    try:
        document = parse_document(CacheDocument, data or b"", key)
    except DamageError:
        return None
    files = {file.path for file in document.files.values()}
    return {key, *files, *own}


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
