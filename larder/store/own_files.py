"""Larder's own files in a store, of which a refusal is one of the whole store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, TypeVar

from larder.bounds import DOCUMENT_BYTES
from larder.errors import DamageError, NotFoundError, ObjectError, StoreError
from larder.store.base import ObjectInfo, Readable, Store
from larder.store.keys import object_url
from larder.units import format_bytes

T = TypeVar("T")

LAST = "\U0010ffff"
"""The last character: after every key that begins with a prefix comes the prefix with this."""


@contextmanager
def published_file_errors() -> Iterator[None]:
    """Treat a refusal of one of Larder's own files as a refusal of the whole store."""
    try:
        yield
    except ObjectError as error:
        if error.code != "object.unreadable":
            raise
        permissions = "request permission to list, read and write there, or check the address"
        hint = error.hint or permissions
        raise StoreError("store.denied", error.message, where=error.where, hint=hint) from error


def once_more(read: Callable[[], T]) -> T:
    """Read what was published; a second time if it is damaged, as a store may err once."""
    try:
        return read()
    except (DamageError, ObjectError):
        return read()


def read_optional(store: Store, key: str) -> bytes | None:
    """The bytes of one of Larder's own files, or None if it does not exist."""
    try:
        with published_file_errors():
            return read_document(store, key)
    except NotFoundError:
        return None


def read_document(store: Readable, key: str, if_match: str | None = None) -> bytes:
    """Read a document of at most `DOCUMENT_BYTES`; ``damage.manifest`` if it is longer."""
    data = bytes(store.get(key, length=DOCUMENT_BYTES + 1, if_match=if_match))
    if len(data) > DOCUMENT_BYTES:
        message = f"it has more than {format_bytes(DOCUMENT_BYTES)}, which no document has"
        raise DamageError("damage.manifest", message, where=object_url(store.url, key))
    return data


def read_digest(
    store: Readable, key: str, each: Callable[[Any], object] = len, *, if_match: str | None = None
) -> tuple[int, str]:
    """The length and the sha256 of an object; ``each`` gets every buffer of it."""
    hasher, size_bytes = hashlib.sha256(), 0
    with store.open(key, if_match=if_match) as reader:
        for buffer in reader:
            hasher.update(buffer)
            size_bytes += len(buffer)
            each(buffer)
    return size_bytes, hasher.hexdigest()


def has_sha256(store: Readable, info: ObjectInfo, sha256: str) -> bool:
    """Whether the content of an object has a digest; false if it cannot be read, or changes."""
    try:
        return read_digest(store, info.key, if_match=info.etag)[1] == sha256
    except ObjectError:
        return False


def listed_pages(
    root: Store, prefix: str = "", *, start_after: str = ""
) -> Iterator[list[ObjectInfo]]:
    """The pages of a listing; a directory that does not exist is empty, like a prefix in a bucket.

    Only those after the key ``start_after``.
    """
    try:
        yield from root.list(prefix, start_after=start_after)
    except StoreError as error:
        if error.code != "store.missing" or not root.features.local_path:
            raise


def listed(root: Store, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
    """The objects of `listed_pages`, in order."""
    return chain.from_iterable(listed_pages(root, prefix, start_after=start_after))


def not_kept(where: str, size_bytes: int, kept_bytes: int | None) -> StoreError:
    """The error that a store has acknowledged a file, and has not, or not all of it."""
    kept = "does not list it" if kept_bytes is None else f"lists {kept_bytes:,} bytes"
    message = f"the store has acknowledged {size_bytes:,} bytes, but {kept}"
    hint = "run again, which writes it again; if this comes back, the store loses what it is given"
    return StoreError("store.refused", message, where=where, hint=hint)
