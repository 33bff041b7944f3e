"""Compares a listing with the writes that a bucket acknowledged, before a record names them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from larder.errors import NotFoundError, StoreError
from larder.store import object_url
from larder.store.base import ObjectInfo, Store
from larder.store.own_files import not_kept

_COLUMNS = ("key", "size_bytes", "mirror_etag")


def check_kept(root: Store, prefix: str, copies: Iterable[pa.RecordBatch]) -> None:
    """Refuse copies that the storage does not have (``store.refused``).

    ``copies`` are of schema OBJECTS, ordered by key. Pages without copies are skipped where that
    takes fewer requests. A listing may be late, so an object that differs is requested once by
    itself.
    """
    listing = _OrderedListing(root, prefix)
    for batch in copies:
        for key, size_bytes, etag in zip(
            *(batch.column(name).to_pylist() for name in _COLUMNS), strict=True
        ):
            if not _is_kept(listing.find(prefix + key), size_bytes, etag):
                info, where = _now(root, prefix + key), object_url(root.url, prefix + key)
                if info is None or info.size_bytes != size_bytes:
                    raise not_kept(where, size_bytes, info.size_bytes if info else None)
                if not _is_kept(info, size_bytes, etag):
                    message = "the object was replaced while this run copied"
                    raise StoreError("store.refused", message, where=where, hint="run again")


def _is_kept(info: ObjectInfo | None, size_bytes: int, etag: str | None) -> bool:
    """Whether an object is as written; some stores return no etag for a write."""
    return info is not None and info.size_bytes == size_bytes and etag in (None, "", info.etag)


def _now(root: Store, key: str) -> ObjectInfo | None:
    try:
        return root.head(key)
    except NotFoundError:
        return None


class _OrderedListing:
    """Objects below a prefix, requested in the order of their keys."""

    def __init__(self, root: Store, prefix: str) -> None:
        self._root = root
        self._prefix = prefix
        self._pages: Iterator[list[ObjectInfo]] | None = None
        self._page: dict[str, ObjectInfo] = {}
        self._last = b""

    def find(self, key: str) -> ObjectInfo | None:
        wanted = key.encode()
        while self._pages is None or self._last < wanted:
            before = key[:-1]
            if self._pages is None or before.encode() > self._last:
                after = before if before.startswith(self._prefix) else ""
                self._pages = self._root.list(self._prefix, start_after=after)
            page = next((page for page in self._pages if page), None)
            if page is None:
                self._page, self._last = {}, b"\xff"  # after all keys
            else:
                self._page = {info.key: info for info in page}
                self._last = page[-1].key.encode()
        return self._page.get(key)
