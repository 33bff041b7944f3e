"""Copies one object through this machine, verified, in bounded memory.

A copy is proved by the first of these that applies, of which none takes a further request::

    check    what proves it
    md5      the target's etag is the MD5 of the content, and so is the source's, or it was computed
    crc32c   the target has compared the CRC32C of the bytes that were read, or keeps it
    md5      the target is a directory, and the bytes that were read have the MD5 of the source
    crc32c   the target is a directory: the CRC32C is that of the bytes that were read

If none applies, the copy is read back and compared by its CRC32C; with ``verify: size``, it is only
compared by its size (check ``size``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

import google_crc32c

from larder.copy.limits import CopyLimits
from larder.errors import NotFoundError, ObjectError
from larder.limits import WRITER_BYTES
from larder.manifest.digest import format_crc32c
from larder.store import object_url
from larder.store.base import ObjectInfo, Readable, Reader, Store
from larder.store.etags import ContentCheck, changed, is_md5

WHOLE_BYTES = 8 * 1024**2
"""Up to this size, an object is held in memory as a whole."""

_PIECES_BYTES = 4 * 1024**2
"""Memory of an object that is read in pieces of a mebibyte and written to a file."""


class CopiedObject(NamedTuple):
    """An object that was copied: a row of `larder.manifest.schemas.OBJECTS`.

    Attributes:
        etag: Its etag in the listing.
        modified_us: When the copy was written, microseconds since 1970 UTC.
        checksum: ``crc32c:`` and eight hex digits, of the bytes read from the source; None if they
            did not pass through this machine, and no store keeps it.
        check: How the copy was verified: ``md5``, ``crc32c``, ``etag`` or ``size``.
    """

    key: str
    size_bytes: int
    etag: str
    modified_us: int
    checksum: str | None
    mirror_etag: str
    check: str

    @staticmethod
    def of(source: ObjectInfo, copy: ObjectInfo, checksum: str | None, check: str) -> CopiedObject:
        return CopiedObject(
            source.key,
            source.size_bytes,
            source.etag,
            copy.modified_us,
            checksum,
            copy.etag,
            check,
        )


def known_md5(store: Readable, etag: str) -> str | None:
    """The MD5 of the content of an object in hex, if its etag says it."""
    features = store.features
    trusted = features.etag_trust is None or not features.etag_trust.misleading
    return etag if features.etag_is_md5 and is_md5(etag) and trusted else None


def copy_object(
    source: Readable,
    info: ObjectInfo,
    target: Store,
    key: str,
    limits: CopyLimits,
    ready: Callable[[], None] = lambda: None,
) -> CopiedObject:
    """Copy one object and verify the copy; see the table above.

    The object is read on the condition that its etag has not changed since the listing. Content
    type and metadata are kept. A copy that fails verification is deleted.
    """
    if info.size_bytes <= WHOLE_BYTES:
        with limits.budget.holding(2 * info.size_bytes):
            limits.admit(info.size_bytes, ready)
            return _copy_whole(source, info, target, key, limits)
    with limits.budget.holding(_PIECES_BYTES if target.features.local_path else WRITER_BYTES):
        return _copy_stream(source, info, target, key, limits, ready)


def _copy_whole(
    source: Readable, info: ObjectInfo, target: Store, key: str, limits: CopyLimits
) -> CopiedObject:
    with source.open(info.key, if_match=info.etag or None) as reader:
        pieces = [piece if isinstance(piece, bytes) else bytes(piece) for piece in reader]
    data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    if len(data) != info.size_bytes:
        raise changed(object_url(source.url, info.key), info.size_bytes, len(data))
    crc32c = google_crc32c.value(data)
    _check_read(source, reader.info, crc32c)
    md5 = known_md5(source, info.etag)
    if md5 is not None and not target.features.etag_is_md5:
        # The target cannot tell that something else was read.
        md5 = info.etag if _proved(source, info, data) else None
    elif md5 is None and target.features.etag_is_md5:
        md5 = _md5(data)
    try:
        written = target.put(key, data, like=reader.info, md5=md5, sync=False)
    except ObjectError as error:
        if error.code != "object.mismatch" or md5 != info.etag:
            raise
        _proved(source, info, data)  # or its etag is no MD5 after all
        md5 = _md5(data)
        written = target.put(key, data, like=reader.info, md5=md5, sync=False)
    try:
        return _verified(source, info, target, written, data, crc32c, md5, limits)
    except ObjectError:
        with suppress(NotFoundError):
            if target.head(key).etag == written.etag:
                target.delete(key)
        raise


def _verified(
    source: Readable,
    info: ObjectInfo,
    target: Store,
    written: ObjectInfo,
    data: bytes,
    crc32c: int,
    md5: str | None,
    limits: CopyLimits,
) -> CopiedObject:
    checksum = format_crc32c(crc32c)
    if target.features.etag_is_md5 and written.etag == md5:
        return CopiedObject.of(info, written, checksum, "md5")
    if md5 == info.etag and target.features.etag_is_md5 and is_md5(written.etag):
        # One of the two etags is no MD5, or the bytes were damaged on their way here.
        _proved(source, info, data)
        if written.etag == _md5(data):
            return CopiedObject.of(info, written, checksum, "md5")
    if written.checksum == checksum:
        return CopiedObject.of(info, written, checksum, "crc32c")
    if target.features.local_path:
        return CopiedObject.of(info, written, checksum, "md5" if md5 == info.etag else "crc32c")
    if limits.verify == "size":
        return CopiedObject.of(info, written, checksum, "size")
    return CopiedObject.of(info, read_back(target, written, crc32c), checksum, "crc32c")


def _check_read(source: Readable, info: ObjectInfo, crc32c: int) -> None:
    """Compare what was read with the checksum that the source keeps, if any."""
    kept = info.checksum or ""
    if kept.startswith("crc32c:") and kept != format_crc32c(crc32c):
        raise ObjectError(
            "object.mismatch",
            f"the bytes that were read have {format_crc32c(crc32c)}, but the store keeps {kept}",
            where=object_url(source.url, info.key),
            hint="the network or the store damages data; run again",
        )


def _proved(source: Readable, info: ObjectInfo, data: bytes) -> bool:
    """Compare what was read with the source's etag; see `larder.store.etags`."""
    content = ContentCheck(source, info.key, info.etag, info.size_bytes)
    content.add(data)
    return content.check()


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _copy_stream(
    source: Readable,
    info: ObjectInfo,
    target: Store,
    key: str,
    limits: CopyLimits,
    ready: Callable[[], None],
) -> CopiedObject:
    content = ContentCheck(source, info.key, info.etag, info.size_bytes)
    with (
        source.open(info.key, if_match=info.etag or None) as reader,
        target.writer(key, like=reader.info, sync=False) as writer,
    ):
        for piece in _admitted(reader, limits, ready):
            content.add(piece)
            writer.write(piece)
        proved = content.check()
        _check_read(source, reader.info, content.crc32c)
        written = writer.commit()
    checksum = format_crc32c(content.crc32c)
    if written.checksum == checksum:
        return CopiedObject.of(info, written, checksum, "crc32c")
    if target.features.local_path:
        return CopiedObject.of(info, written, checksum, "md5" if proved else "crc32c")
    if target.features.etag_is_md5 and proved and written.etag == info.etag:
        return CopiedObject.of(info, written, checksum, "md5")
    if limits.verify == "size":
        return CopiedObject.of(info, written, checksum, "size")
    return CopiedObject.of(info, read_back(target, written, content.crc32c), checksum, "crc32c")


def _admitted(reader: Reader, limits: CopyLimits, ready: Callable[[], None]) -> Iterator[bytes]:
    for buffer in reader:
        limits.admit(len(buffer), ready)
        yield buffer if isinstance(buffer, bytes) else bytes(buffer)


def read_back(target: Store, written: ObjectInfo, crc32c: int) -> ObjectInfo:
    """The current copy, if it has this CRC32C; another run may have written it again. If nothing
    else did, it is deleted, and the error is ``object.mismatch``.
    """
    seen = 0
    with target.open(written.key) as reader:
        for buffer in reader:
            seen = google_crc32c.extend(seen, bytes(buffer))
    if seen == crc32c:
        return reader.info
    hint = "another run copies another state of the source; run again when it is done"
    if reader.info.etag == written.etag:
        target.delete(written.key)
        hint = "the copy was removed; run again"
    raise ObjectError(
        "object.mismatch",
        f"the copy has {format_crc32c(seen)}, but its source has {format_crc32c(crc32c)}",
        where=object_url(target.url, written.key),
        hint=hint,
    )
