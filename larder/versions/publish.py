"""Publishing: the last writes, in the order that is safe for readers.

The files that a document names are written before it, and nothing is visible before its document:
segment.json, cache.json, version.json, and then the tag. Documents are created only if absent, so
of two concurrent runs the first one wins; both made the same thing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from larder.errors import (
    NotFoundError,
    ObjectError,
    PreconditionError,
    RetryableError,
    StoreError,
)
from larder.store.base import ObjectInfo, Store
from larder.versions import layout
from larder.versions.documents import (
    CacheDocument,
    SegmentDocument,
    VersionDocument,
    parse_document,
    seal,
    unseal,
)

__all__ = [
    "TAG",
    "find_prepared",
    "move_tag",
    "own_file_errors",
    "publish_cache",
    "publish_segment",
    "publish_version",
    "read_cache",
    "read_segment",
    "read_tag",
    "read_version",
    "remember_inputs",
]

TAG = "latest"
"""The tag that every run moves."""

HISTORY = 100
"""Maximum length of a tag's history."""


@contextmanager
def own_file_errors() -> Iterator[None]:
    """Treat a refusal of one of Larder's own files as a refusal of the whole store.

    Raises:
        StoreError: ``store.denied`` instead of an `ObjectError` ``object.unreadable``.
    """
    try:
        yield
    except ObjectError as error:
        if error.code != "object.unreadable":
            raise
        hint = error.hint or "request permission to list, read and write there"
        raise StoreError("store.denied", error.message, where=error.where, hint=hint) from error


def publish_segment(store: Store, segment: SegmentDocument) -> SegmentDocument:
    """Write segment.json unless it exists; returns the one that exists now.

    Args:
        store: The dataset's root.
        segment: A complete segment: every file it names has been written.
    """
    _create(store, layout.segment_key(segment.id), seal(segment))
    published = read_segment(store, segment.id)
    return published or segment


def publish_cache(store: Store, cache: CacheDocument) -> CacheDocument:
    """Write cache.json unless it exists; returns the one that exists now."""
    _create(store, layout.cache_key(cache.segment, cache.id), seal(cache))
    return read_cache(store, cache.segment, cache.id) or cache


def publish_version(store: Store, version: VersionDocument) -> VersionDocument:
    """Write version.json unless it exists; returns the one that exists now."""
    _create(store, layout.version_key(version.id), seal(version))
    published = read_version(store, version.id)
    return published or version


def _create(store: Store, key: str, data: bytes) -> None:
    try:
        with own_file_errors():
            store.put(key, data, if_absent=True)
    except PreconditionError:
        return


def _optional(store: Store, key: str) -> bytes | None:
    try:
        with own_file_errors():
            return bytes(store.get(key))
    except NotFoundError:
        return None


def read_segment(store: Store, segment: str) -> SegmentDocument | None:
    """segment.json, or None while the segment is not complete.

    Raises:
        DamageError: It exists but is damaged.
    """
    key = layout.segment_key(segment)
    data = _optional(store, key)
    return None if data is None else parse_document(SegmentDocument, data, store.url + key)


def read_cache(store: Store, segment: str, cache: str) -> CacheDocument | None:
    """cache.json, or None while the cache is not complete.

    Raises:
        DamageError: It exists but is damaged.
    """
    key = layout.cache_key(segment, cache)
    data = _optional(store, key)
    return None if data is None else parse_document(CacheDocument, data, store.url + key)


def read_version(store: Store, version: str) -> VersionDocument | None:
    """version.json, or None if there is no such version.

    Raises:
        DamageError: It exists but is damaged.
    """
    key = layout.version_key(version)
    data = _optional(store, key)
    return None if data is None else parse_document(VersionDocument, data, store.url + key)


def find_prepared(store: Store, inputs: str) -> VersionDocument | None:
    """The version that these inputs led to, if it exists."""
    key = layout.inputs_key(inputs)
    data = _optional(store, key)
    if data is None:
        return None
    return read_version(store, str(unseal(data, store.url + key)["version"]))


def remember_inputs(store: Store, inputs: str, version: str) -> None:
    """Record which version these inputs led to."""
    _create(store, layout.inputs_key(inputs), seal({"version": version}))


def read_tag(store: Store, tag: str) -> dict[str, Any] | None:
    """The document of a tag, or None: ``version``, ``inventory_us`` and ``history``."""
    key = layout.tag_key(tag)
    data = _optional(store, key)
    return None if data is None else unseal(data, store.url + key)


def move_tag(store: Store, tag: str, version: str, inventory_us: int) -> bool:
    """Make a tag name a version; returns whether it was moved.

    It is not moved to an older inventory than its own. If it already names the version, nothing is
    written, so that a run with nothing changed writes nothing: its inventory remains that of the
    run that moved it. The document is replaced by compare-and-swap if the store supports it; if
    another run moved the tag in between, the decision is made again.

    Args:
        store: The dataset's root.
        tag: Its name, such as ``latest``.
        version: The version's ID.
        inventory_us: When the inventory was taken, microseconds since 1970 UTC.

    Raises:
        RetryableError: Other runs kept moving it at the same time.
    """
    for _ in range(20):
        try:
            with own_file_errors():
                return _try_to_move(store, layout.tag_key(tag), version, inventory_us)
        except PreconditionError:
            continue
    raise RetryableError("store.unavailable", "the tag kept changing", where=store.url + tag)


def _try_to_move(store: Store, key: str, version: str, inventory_us: int) -> bool:
    found = _with_info(store, key)
    if found is None:
        document = {"version": version, "inventory_us": inventory_us, "history": []}
        store.put(key, seal(document), if_absent=True)
        return True
    info, old = found
    if old["version"] == version or old["inventory_us"] > inventory_us:
        return False
    past = [*old["history"], {"version": old["version"], "inventory_us": old["inventory_us"]}]
    document = {"version": version, "inventory_us": inventory_us, "history": past[-HISTORY:]}
    if_match = info.etag if store.features.replace_if_match else None
    store.put(key, seal(document), if_match=if_match)
    return True


def _with_info(store: Store, key: str) -> tuple[ObjectInfo, dict[str, Any]] | None:
    try:
        info = store.head(key)
        data = bytes(store.get(key, if_match=info.etag))
    except NotFoundError:
        return None
    return info, unseal(data, store.url + key)
