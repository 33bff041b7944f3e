"""Publishing: the last writes, in the order that is safe for readers.

The files that a document names are written before it, and nothing is visible before its document:
segment.json, cache.json, version.json, and then the tag (`larder.versions.tags`). Each is written
twice: first under a name with its digest, from which a repair copies it, then, as the write that
publishes it, under its own. Documents are created only if absent, so of two concurrent runs the
first one wins; both made the same thing. On a store that does not keep this condition
(`larder.versions.conditions`) a document is looked for right before it is written, and of two runs
that do so at once the second one wins.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from larder.errors import (
    NotFoundError,
    ObjectError,
    PreconditionError,
    StoreError,
)
from larder.manifest.digest import sha256_hex
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import (
    CacheDocument,
    SegmentDocument,
    VersionDocument,
    parse_document,
    seal,
)


@contextmanager
def own_file_errors() -> Iterator[None]:
    """Treat a refusal of one of Larder's own files as a refusal of the whole store."""
    try:
        yield
    except ObjectError as error:
        if error.code != "object.unreadable":
            raise
        hint = error.hint or "request permission to list, read and write there"
        raise StoreError("store.denied", error.message, where=error.where, hint=hint) from error


def publish_segment(
    store: Store, segment: SegmentDocument, *, if_absent: bool = True
) -> SegmentDocument:
    """Write segment.json unless it exists; returns the one that exists now.

    Every file that it names has been written. ``if_absent``: whether the store keeps this
    condition.
    """
    published = read_segment(store, segment.id)
    if published is None:
        _create(store, layout.segment_key(segment.id), seal(segment), if_absent)
        published = read_segment(store, segment.id)
    return published or segment


def publish_cache(store: Store, cache: CacheDocument, *, if_absent: bool = True) -> CacheDocument:
    """Write cache.json unless it exists; returns the one that exists now."""
    published = read_cache(store, cache.segment, cache.id)
    if published is None:
        _create(store, layout.cache_key(cache.segment, cache.id), seal(cache), if_absent)
        published = read_cache(store, cache.segment, cache.id)
    return published or cache


def publish_version(
    store: Store, version: VersionDocument, *, if_absent: bool = True
) -> VersionDocument:
    """Write version.json unless it exists; returns the one that exists now."""
    published = read_version(store, version.id)
    if published is None:
        _create(store, layout.version_key(version.id), seal(version), if_absent)
        published = read_version(store, version.id)
    return published or version


def _create(store: Store, key: str, data: bytes, if_absent: bool) -> None:
    try:
        with own_file_errors():
            store.put(layout.copy_key(key, sha256_hex(data)), data)
            store.put(key, data, if_absent=if_absent)
    except PreconditionError:
        return


def read_optional(store: Store, key: str) -> bytes | None:
    """The bytes of one of Larder's own files, or None if it does not exist."""
    try:
        with own_file_errors():
            return bytes(store.get(key))
    except NotFoundError:
        return None


def read_segment(store: Store, segment: str) -> SegmentDocument | None:
    """segment.json, or None while the segment is not complete."""
    key = layout.segment_key(segment)
    data = read_optional(store, key)
    return None if data is None else parse_document(SegmentDocument, data, store.url + key)


def read_cache(store: Store, segment: str, cache: str) -> CacheDocument | None:
    """cache.json, or None while the cache is not complete."""
    key = layout.cache_key(segment, cache)
    data = read_optional(store, key)
    return None if data is None else parse_document(CacheDocument, data, store.url + key)


def read_version(store: Store, version: str) -> VersionDocument | None:
    """version.json, or None if there is no such version."""
    key = layout.version_key(version)
    data = read_optional(store, key)
    return None if data is None else parse_document(VersionDocument, data, store.url + key)
