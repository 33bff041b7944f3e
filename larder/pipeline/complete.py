"""Checks that a version that is reused is complete, with one listing of each of its prefixes.

Lengths are compared, contents are not: no object is requested individually, except the documents of
segments, the manifests with the lengths of the shards, and the file of omitted rows. Shards that
the version does not list may be missing. Unfinished work is not listed: there may be more of it
than of everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain

from larder.errors import DamageError, NotFoundError
from larder.pipeline.job import listed
from larder.pipeline.named import named_by_document, segment_files
from larder.store import object_url
from larder.store.base import ObjectInfo, Store
from larder.units import format_count
from larder.versions import layout
from larder.versions.documents import SegmentDocument, VersionDocument
from larder.versions.omitted import read_omitted


def check_complete(root: Store, version: VersionDocument, *, caches_remade: bool = False) -> None:
    """Check that every file of a version exists with its full length.

    Args:
        root: The dataset's root.
        version: The published version.
        caches_remade: Whether caches without a document are made again, so that they are not
            missed.

    Raises:
        DamageError: ``damage.size``, with the first damaged file and the number of the others;
            ``damage.digest``, ``damage.manifest``: a manifest of shards, or the file of omitted
            rows, is damaged.
    """
    there = {info.key: info.size_bytes for info in _there(root, version)}
    wanted = {file.path: file.bytes for file in named_by_document(version)}
    if caches_remade:
        wanted = {key: size for key, size in wanted.items() if _needed(key, there)}
    there |= {info.key: info.size_bytes for info in _elsewhere(root, version, wanted)}
    damaged = _damaged(there, wanted)
    if not damaged:  # so the manifests of the shards can be read
        shards = segment_files(root, version.files, read_omitted(root, version))
        wanted = {file.path: file.bytes for file in shards}
        damaged = _damaged(there, wanted)
    if damaged:
        document = layout.version_key(version.id)
        raise _damage(root, document, damaged, there.get(damaged[0]), wanted)


def check_segment(root: Store, document: SegmentDocument) -> None:
    """Check that every file of a complete segment exists with its full length, except its caches.

    Args:
        root: The dataset's root.
        document: Its segment.json.

    Raises:
        DamageError: ``damage.size``: a file is missing, or has another length.
    """
    prefixes = layout.shards_prefix(document.id), layout.index_prefix(document.id)
    infos = chain.from_iterable(listed(root, prefix) for prefix in prefixes)
    there = {info.key: info.size_bytes for info in infos}
    wanted: dict[str, int | None] = {file.path: file.bytes for file in document.files}
    damaged = _damaged(there, wanted)
    if not damaged:
        wanted = {file.path: file.bytes for file in segment_files(root, document.files, {})}
        damaged = _damaged(there, wanted)
    if damaged:
        raise _damage(root, layout.segment_key(document.id), damaged, there.get(damaged[0]), wanted)


def _needed(key: str, there: Mapping[str, int]) -> bool:
    """Whether a file does not belong to a cache that has no document."""
    cache = layout.cache_of(key)
    return cache is None or layout.cache_key(*cache) in there


def _damaged(there: Mapping[str, int], wanted: Mapping[str, int | None]) -> list[str]:
    return [
        key
        for key, size_bytes in wanted.items()
        if key not in there or size_bytes not in (None, there[key])
    ]


def _there(root: Store, version: VersionDocument) -> Iterator[ObjectInfo]:
    for use in version.segments:
        with suppress(NotFoundError):
            yield root.head(layout.segment_key(use.id))
        yield from listed(root, layout.shards_prefix(use.id))
        yield from listed(root, layout.index_prefix(use.id))
        if use.cache:
            yield from listed(root, layout.cache_prefix(use.id, use.cache))
    yield from listed(root, layout.version_prefix(version.id))


def _elsewhere(root: Store, version: VersionDocument, keys: Iterable[str]) -> Iterator[ObjectInfo]:
    """The files that belong to segments and versions before this one."""
    own = (
        layout.version_prefix(version.id),
        *(layout.segment_prefix(use.id) for use in version.segments),
    )
    for key in keys:
        if not key.startswith(own):
            with suppress(NotFoundError):
                yield root.head(key)


def _damage(
    root: Store,
    document: str,
    damaged: Sequence[str],
    found_bytes: int | None,
    wanted: Mapping[str, int | None],
) -> DamageError:
    first, wanted_bytes = "the file is missing", wanted[damaged[0]]
    if found_bytes is not None and wanted_bytes is not None:
        first = f"the file has {found_bytes:,} bytes instead of {wanted_bytes:,}"
    others = len(damaged) - 1
    more = f"; {format_count(others, 'more file')} of this version, too" if others else ""
    documents = list(dict.fromkeys([*map(_document, damaged), document]))
    documents.sort(key=lambda key: key == document)  # it is deleted last
    return DamageError(
        "damage.size",
        f"{first}{more}",
        where=object_url(root.url, damaged[0]),
        hint=f"run larder verify --repair, or delete {' and '.join(documents)} below {root.url} and"
        " prepare the dataset again, which makes what is missing",
    )


def _document(key: str) -> str:
    """The document that makes a file part of a complete cache, segment or version."""
    prefix, name = key.split("/")[:2]
    if prefix == "versions":
        return layout.version_key(name)
    cache = layout.cache_of(key)
    return layout.cache_key(*cache) if cache else layout.segment_key(name)
