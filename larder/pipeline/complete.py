"""Checks that a version that is reused is complete, with one listing of each of its prefixes.

Lengths are compared, contents are not: no object is requested individually, except the documents of
segments, the manifests with the lengths of the shards, and the file of omitted rows. Shards that
the version does not list may be missing. Unfinished work is not listed: there may be more of it
than of everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from larder.errors import DamageError, NotFoundError
from larder.manifest.schemas import SHARDS
from larder.pipeline.job import ManifestRef, listed
from larder.pipeline.listed import listed_shards
from larder.pipeline.manifests import read_ref
from larder.pipeline.reader_indexes import index_sizes
from larder.store import object_url
from larder.store.base import ObjectInfo, Store
from larder.units import format_count
from larder.versions import layout
from larder.versions.documents import VersionDocument
from larder.versions.omitted import read_omitted

__all__ = ["check_complete"]


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
    wanted = dict(_named(version))
    if caches_remade:
        wanted = {key: size for key, size in wanted.items() if _needed(key, there)}
    there |= {info.key: info.size_bytes for info in _elsewhere(root, version, wanted)}
    damaged = _damaged(there, wanted)
    if not damaged:  # so the manifests of the shards can be read
        wanted = dict(_shards(root, version))
        damaged = _damaged(there, wanted)
    if damaged:
        raise _damage(root, version, damaged, there.get(damaged[0]), wanted[damaged[0]])


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


def _named(version: VersionDocument) -> Iterator[tuple[str, int | None]]:
    """The files that version.json names, and the documents, whose length is not known."""
    for use in version.segments:
        yield layout.segment_key(use.id), None
        if use.cache:
            yield layout.cache_key(use.id, use.cache), None
    yield from ((file.path, file.bytes) for file in version.files)
    for parts in version.cache.splits.values() if version.cache else ():
        yield from ((part.path, part.bytes) for part in parts)


def _shards(root: Store, version: VersionDocument) -> Iterator[tuple[str, int | None]]:
    omitted = read_omitted(root, version)
    for manifest in version.files_of("shards"):
        for shard in listed_shards(read_ref(root, ManifestRef.of(manifest), SHARDS), omitted):
            for file in shard.files:
                yield layout.shard_key(shard.segment, shard.split, file.name), file.bytes
    for manifest in version.files_of("indexes"):
        yield from index_sizes(root, ManifestRef.of(manifest))


def _damage(
    root: Store,
    version: VersionDocument,
    damaged: Sequence[str],
    found_bytes: int | None,
    wanted_bytes: int | None,
) -> DamageError:
    first = "the file is missing"
    if found_bytes is not None and wanted_bytes is not None:
        first = f"the file has {found_bytes:,} bytes instead of {wanted_bytes:,}"
    others = len(damaged) - 1
    more = f"; {format_count(others, 'more file')} of this version, too" if others else ""
    own = layout.version_prefix(version.id)
    documents = list(dict.fromkeys(_document(key) for key in damaged if not key.startswith(own)))
    documents.append(layout.version_key(version.id))
    return DamageError(
        "damage.size",
        f"{first}{more}",
        where=object_url(root.url, damaged[0]),
        hint=f"restore it, or delete {' and '.join(documents)} below {root.url} and prepare the"
        " dataset again, which makes what is missing",
    )


def _document(key: str) -> str:
    """The document that makes a file part of a complete cache, segment or version."""
    prefix, name = key.split("/")[:2]
    if prefix == "versions":
        return layout.version_key(name)
    cache = layout.cache_of(key)
    return layout.cache_key(*cache) if cache else layout.segment_key(name)
