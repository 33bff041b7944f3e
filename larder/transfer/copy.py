"""Copies one object from one store to another, verified, in bounded memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import google_crc32c

from larder.errors import ObjectError
from larder.limits import STREAM_BYTES, ByteBudget
from larder.store import object_url
from larder.store.base import ObjectInfo, Readable, Store
from larder.store.etags import ContentCheck, is_md5

__all__ = ["Copy", "copy_object", "format_crc32c"]

WHOLE_BYTES = 8 * 1024**2


class Copy(NamedTuple):
    """An object that was copied: a row of `larder.manifest.schemas.OBJECTS`.

    Attributes:
        key: Key of the object in the source.
        size_bytes: Its length.
        etag: Its etag in the listing.
        modified_us: When the copy was written, microseconds since 1970 UTC.
        checksum: ``crc32c:`` and eight hex digits, of the bytes read from the source; None if only
            an etag identifies the copy.
        mirror_etag: Etag of the copy.
        check: How the copy was verified: ``md5`` or ``crc32c``.
    """

    key: str
    size_bytes: int
    etag: str
    modified_us: int
    checksum: str | None
    mirror_etag: str
    check: str

    @staticmethod
    def of(source: ObjectInfo, copy: ObjectInfo, crc32c: int, check: str) -> Copy:
        """The row for an object from the listing, and its copy as described by its store."""
        return Copy(
            source.key,
            source.size_bytes,
            source.etag,
            copy.modified_us,
            format_crc32c(crc32c),
            copy.etag,
            check,
        )


def format_crc32c(value: int) -> str:
    """``crc32c:`` and eight hex digits."""
    return f"crc32c:{value:08x}"


def copy_object(
    source: Readable,
    info: ObjectInfo,
    target: Store,
    key: str,
    budget: ByteBudget,
    ready: Callable[[], None] = lambda: None,
) -> Copy:
    """Copy one object and verify the copy.

    The object is read on the condition that its etag has not changed since the listing; the bytes
    are compared with that etag, if it is an MD5. The copy is verified by the target's etag, if that
    is the MD5 of the content, else by reading it back. A copy that fails verification is deleted.

    Args:
        source: The store that it is read from.
        info: The object as it was listed.
        target: The store that it is written to.
        key: Its key there.
        budget: Bytes held in memory, shared with concurrent copies.
        ready: Called when there is memory, before anything is read; may raise an error.

    Raises:
        ObjectError: The object was deleted or changed, cannot be read or written, or the copy's
            bytes differ (``object.mismatch``).
        StoreError: A store refuses access.
        RetryableError: A store kept failing.
    """
    if info.size_bytes <= WHOLE_BYTES:
        with budget.holding(2 * info.size_bytes):
            ready()
            return _copy_whole(source, info, target, key)
    with budget.holding(STREAM_BYTES):
        ready()
        return _copy_stream(source, info, target, key)


def _copy_whole(source: Readable, info: ObjectInfo, target: Store, key: str) -> Copy:
    data = bytes(source.get(info.key, if_match=info.etag))
    content = ContentCheck(source, info.key, info.etag, info.size_bytes)
    content.add(data)
    proved = content.check()
    written = target.put(key, data)
    check = "md5"
    if not _etag_proves(target, info.etag if proved else "", written, data):
        written, check = _read_back(target, written, content.crc32c), "crc32c"
    return Copy.of(info, written, content.crc32c, check)


def _copy_stream(source: Readable, info: ObjectInfo, target: Store, key: str) -> Copy:
    content = ContentCheck(source, info.key, info.etag, info.size_bytes)
    with source.open(info.key, if_match=info.etag) as reader, target.writer(key) as writer:
        for buffer in reader:
            content.add(bytes(buffer))
            writer.write(buffer)
        content.check()
        written = writer.commit()
    written = _read_back(target, written, content.crc32c)
    return Copy.of(info, written, content.crc32c, "crc32c")


def _etag_proves(target: Store, md5: str, written: ObjectInfo, data: bytes) -> bool:
    """Whether the etag proves the copy; ``md5`` is that of the content, if it is known."""
    if not (target.features.etag_is_md5 and is_md5(written.etag)):
        return False
    return (
        written.etag == md5 or hashlib.md5(data, usedforsecurity=False).hexdigest() == written.etag
    )


def _read_back(target: Store, written: ObjectInfo, crc: int) -> ObjectInfo:
    """The current copy: another run may have written it again in the meantime."""
    seen = 0
    with target.open(written.key) as reader:
        for buffer in reader:
            seen = google_crc32c.extend(seen, bytes(buffer))
    if seen == crc:
        return reader.info
    hint = "another run copies another state of the source; run again when it is done"
    if reader.info.etag == written.etag:
        target.delete(written.key)
        hint = "the copy was removed; run again"
    raise ObjectError(
        "object.mismatch",
        f"the copy has {format_crc32c(seen)}, but its source has {format_crc32c(crc)}",
        where=object_url(target.url, written.key),
        hint=hint,
    )
