"""Larder's own files in a store; a refused file counts as a refusal of the whole store."""

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

OWN_PREFIX = "_larder/"
"""Prefix of Larder's own files at the root of a bucket or directory with copies."""

LAST = "\U0010ffff"
"""The last character: a prefix with this character sorts after all keys with the prefix."""


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
    """Read a published file; read again if it is damaged, as a store may err once."""
    try:
        return read()
    except (DamageError, ObjectError):
        return read()


def read_optional(store: Store, key: str) -> bytes | None:
    """Read one of Larder's own files; return None if it does not exist."""
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
    """Return the length and the sha256 of an object; ``each`` gets every buffer."""
    hasher, size_bytes = hashlib.sha256(), 0
    with store.open(key, if_match=if_match) as reader:
        for buffer in reader:
            hasher.update(buffer)
            size_bytes += len(buffer)
            each(buffer)
    return size_bytes, hasher.hexdigest()


def has_sha256(store: Readable, info: ObjectInfo, sha256: str) -> bool:
    """Whether an object's content has this sha256; False if it is unreadable or changes."""
    try:
        return read_digest(store, info.key, if_match=info.etag)[1] == sha256
    except ObjectError:
        return False


def listed_pages(
    root: Store, prefix: str = "", *, start_after: str = ""
) -> Iterator[list[ObjectInfo]]:
    """Yield the pages of a listing after the key ``start_after``.

    A missing directory counts as empty, like a prefix in a bucket.
    """
    try:
        yield from root.list(prefix, start_after=start_after)
    except StoreError as error:
        if error.code != "store.missing" or not root.features.local_path:
            raise


def listed(root: Store, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
    return chain.from_iterable(listed_pages(root, prefix, start_after=start_after))


def listed_without(root: Store, prefix: str, skipped: str) -> Iterator[ObjectInfo]:
    """Yield the files below a prefix, but none below ``skipped``, which is not listed."""
    for info in listed(root, prefix):
        if info.key.startswith(skipped):
            yield from listed(root, prefix, start_after=f"{skipped}{LAST}")
            return
        yield info


def not_kept(where: str, size_bytes: int, kept_bytes: int | None) -> StoreError:
    """Return the error of a store that acknowledged a file, but does not list all its bytes."""
    kept = "does not list it" if kept_bytes is None else f"lists {kept_bytes:,} bytes"
    message = f"the store has acknowledged {size_bytes:,} bytes, but {kept}"
    hint = "run again, which writes it again; if this comes back, the store loses what it is given"
    return StoreError("store.refused", message, where=where, hint=hint)
