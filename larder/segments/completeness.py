"""Checks that a reused version is complete, with one listing of each of its prefixes.

Lengths are compared, contents are not. The only objects requested individually are the documents of
segments, the manifests with the lengths of shards, and the file of omitted rows. Shards that the
version does not list may be missing. Unfinished work is not listed, as it may exceed everything
else.

If no version has been published with a segment or cache, files that are not older than its document
are read: the document is the last write of its run, so another run may have written them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain

from larder.budgets import map_ahead
from larder.errors import DamageError, NotFoundError
from larder.manifest.sealed import StoredFile
from larder.progress import Progress
from larder.store import local_path, object_url
from larder.store.base import ObjectInfo, Store
from larder.store.own_files import has_sha256, listed, not_kept
from larder.units import format_count
from larder.versions import layout
from larder.versions.documents import CacheFile, SegmentDocument, VersionDocument
from larder.versions.omitted import read_omitted
from larder.versions.version_copy import named_by_document, segment_files

Written = StoredFile | CacheFile

_READERS = 8


def check_complete(root: Store, version: VersionDocument, *, caches_remade: bool = False) -> int:
    """Check that every file of a version exists with its full length, or refuse with `DamageError`.

    With ``caches_remade``, caches without a document are made again, so their files may be missing.
    Returns when the version was published, in microseconds by the store's clock; 0 if unknown.
    """
    document, published_us = layout.version_key(version.id), 0
    sizes = {}
    for info in _there(root, version):
        sizes[info.key] = info.size_bytes
        published_us = info.clock_us if info.key == document else published_us
    wanted = named_by_document(version)
    if caches_remade:
        wanted = {key: size for key, size in wanted.items() if _needed(key, sizes)}
    sizes |= {info.key: info.size_bytes for info in _elsewhere(root, version, wanted)}
    damaged = _damaged(sizes, wanted)
    if not damaged:  # so the manifests of the shards can be read
        shards = segment_files(root, version.files, read_omitted(root, version))
        wanted = {file.path: file.bytes for file in shards}
        damaged = _damaged(sizes, wanted)
    if damaged:
        raise _damage(root, document, damaged, sizes.get(damaged[0]), wanted)
    return published_us


def check_segment(root: Store, document: SegmentDocument, progress: Progress) -> None:
    """Check that every file of a complete segment is as it was published, except its caches.

    ``damage.size``: a file is missing, or has another length; ``damage.digest``: a file was written
    since, with other bytes.
    """
    key = layout.segment_key(document.id)
    prefixes = layout.shards_prefix(document.id), layout.index_prefix(document.id)
    infos = chain.from_iterable(listed(root, prefix) for prefix in prefixes)
    objects = {info.key: info for info in infos}
    sizes = {info.key: info.size_bytes for info in objects.values()}
    since_us = root.head(key).clock_us
    digests = {file.path: file.sha256 for file in document.files}
    wanted: dict[str, int | None] = {file.path: file.bytes for file in document.files}
    damaged = _damaged(sizes, wanted)
    if not damaged and not (altered := written_since(root, since_us, objects, digests, progress)):
        files = list(segment_files(root, document.files, {}))
        wanted = {file.path: file.bytes for file in files}
        damaged = _damaged(sizes, wanted)
        digests = {file.path: file.sha256 for file in files}
        altered = [] if damaged else written_since(root, since_us, objects, digests, progress)
    if damaged:
        raise _damage(root, key, damaged, sizes.get(damaged[0]), wanted)
    if altered:
        raise _refusal(root, key, altered, "the bytes do not match the digest", "damage.digest")


def check_stored(root: Store, prefixes: Iterable[str], files: Iterable[Written]) -> None:
    """Compare the lengths of files that were just written with a listing (``store.refused``)."""
    sizes = {info.key: info.size_bytes for prefix in prefixes for info in listed(root, prefix)}
    for file in files:
        if sizes.get(file.path) != file.bytes:
            raise not_kept(object_url(root.url, file.path), file.bytes or 0, sizes.get(file.path))


def written_since(
    root: Store,
    since_us: int,
    objects: Mapping[str, ObjectInfo],
    digests: Mapping[str, str],
    progress: Progress,
    is_published: Callable[[], bool] = lambda: False,
) -> list[str]:
    """Return the files that are not older than their document, and have another sha256.

    If a version has been published with them (``is_published``), nothing is read.
    """
    newer = [key for key in digests if _changed_us(root, objects[key]) >= since_us]
    if not newer or is_published():
        return []

    def is_right(key: str) -> bool:
        right = has_sha256(root, objects[key], digests[key])
        progress.advance("index", bytes=objects[key].size_bytes)
        return right

    with ThreadPoolExecutor(_READERS, thread_name_prefix="check") as pool:
        verdicts = list(map_ahead(pool, is_right, newer, window=2 * _READERS))
    return [key for key, right in zip(newer, verdicts, strict=True) if not right]


def _changed_us(root: Store, info: ObjectInfo) -> int:
    """Return when an object was written; in a directory, also when it was moved to its name."""
    if not root.features.local_path:
        return info.modified_us
    with suppress(FileNotFoundError):
        return os.stat(local_path(root, info.key)).st_ctime_ns // 1000
    return info.modified_us


def _needed(key: str, sizes: Mapping[str, int]) -> bool:
    """Return whether a file belongs to no cache, or to a cache with a document."""
    cache = layout.cache_of(key)
    return cache is None or layout.cache_key(*cache) in sizes


def _damaged(sizes: Mapping[str, int], wanted: Mapping[str, int | None]) -> list[str]:
    return [
        key
        for key, size_bytes in wanted.items()
        if key not in sizes or size_bytes not in (None, sizes[key])
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
    """Yield the files that belong to earlier segments and versions."""
    prefixes = (
        layout.version_prefix(version.id),
        *(layout.segment_prefix(use.id) for use in version.segments),
    )
    for key in keys:
        if not key.startswith(prefixes):
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
    return _refusal(root, document, damaged, first)


def _refusal(
    root: Store, document: str, damaged: Sequence[str], first: str, code: str = "damage.size"
) -> DamageError:
    others = len(damaged) - 1
    more = f"; {format_count(others, 'more file')} of this version, too" if others else ""
    documents = list(dict.fromkeys([*map(document_of, damaged), document]))
    documents.sort(key=lambda key: key == document)  # deleted last
    return DamageError(
        code,
        f"{first}{more}",
        where=object_url(root.url, damaged[0]),
        hint="run larder verify --repair if a version has it, or delete"
        f" {' and '.join(documents)} below {root.url} and prepare the dataset again, which makes"
        " what is missing",
    )


def document_of(key: str) -> str:
    """Return the document that makes a file part of a complete cache, segment or version."""
    prefix, name = key.split("/")[:2]
    if prefix == "versions":
        return layout.version_key(name)
    cache = layout.cache_of(key)
    return layout.cache_key(*cache) if cache else layout.segment_key(name)
