"""Proves that a copy has the content of its source, by one ladder for every way of copying.

The first row that applies proves the copy without a further request::

    check    proof
    md5      the copy's etag is the MD5 of the source, or of the bytes that were read
    crc32c   the copy's store keeps the CRC32C of the bytes that were read, or the checksum that
             the source's store keeps
    md5      the bytes that were sent are stored, and have the MD5 of the source
    crc32c   the bytes that were sent are stored, and the source has no MD5, or keeps their CRC32C

A directory stores what is sent. So does an upload whose parts are all proved
(`larder.store.s3.multipart`), and whose etag is made of the etags of its parts. If no row applies,
the copy is read, and compared with the known digests of the source. If these are too few, the
source is read, too. With ``verify: size``, only sizes are compared then (check ``size``).

An object that another program (Skyplane) put at the target is adopted only if its content is proved
in this way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import google_crc32c

from larder.errors import NotFoundError, ObjectError, PreconditionError
from larder.manifest.digest import format_crc32c
from larder.store import object_url
from larder.store.base import ObjectInfo, Readable, Store
from larder.store.etags import is_md5


class CopiedObject(NamedTuple):
    """An object that was copied: a row of `larder.manifest.schemas.OBJECTS`.

    Attributes:
        etag: The etag in the listing.
        modified_us: When the copy was written, microseconds since 1970 UTC.
        checksum: ``crc32c:`` and eight hex digits, of the bytes read from the source; None if they
            did not pass through this machine and no store keeps the checksum.
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
        made = copy.modified_us, checksum, copy.etag, check
        return CopiedObject(source.key, source.size_bytes, source.etag, *made)


class ObjectCopy(NamedTuple):
    """A listed object to copy, and its key at the target."""

    source: Readable
    info: ObjectInfo
    target: Store
    key: str

    @property
    def where(self) -> str:
        """The object at the source, for messages."""
        return object_url(self.source.url, self.info.key)


def known_md5(store: Readable, etag: str) -> str | None:
    """Return the MD5 of an object's content in hex, if its etag states the MD5."""
    features = store.features
    trusted = features.etag_trust is None or not features.etag_trust.misleading
    return etag if features.etag_is_md5 and is_md5(etag) and trusted else None


def crc32c_of(checksum: str | None) -> str | None:
    """Return a checksum if it is a CRC32C, else None."""
    return checksum if (checksum or "").startswith("crc32c:") else None


class Content(NamedTuple):
    """Known digests of an object in the source.

    ``md5`` is from the etag, and ``kept`` is the checksum that the store keeps. ``read_md5`` and
    ``read_crc32c`` (with ``crc32c:`` before it) are of the bytes that were read.
    """

    md5: str | None = None
    kept: str | None = None
    read_md5: str | None = None
    read_crc32c: str | None = None

    @property
    def crc32c(self) -> str | None:
        """Checksum for the record of the copy."""
        return self.read_crc32c or crc32c_of(self.kept)

    def check(
        self, copy: ObjectInfo, *, etag_is_md5: bool, stored_as_sent: bool = False
    ) -> str | None:
        """Return the check that proves a copy by the table above; None if no row applies."""
        if etag_is_md5 and copy.etag and copy.etag in (self.md5, self.read_md5):
            return "md5"
        if copy.checksum and copy.checksum in (self.read_crc32c, self.kept):
            return copy.checksum.partition(":")[0]
        if stored_as_sent and self.md5 is not None and self.md5 == self.read_md5:
            return "md5"
        if stored_as_sent and (self.md5 is None or self.kept == self.read_crc32c):
            return "crc32c"
        return None


def prove(
    way: ObjectCopy,
    written: ObjectInfo,
    content: Content,
    *,
    verify: str,
    stored_as_sent: bool,
    ready: Callable[[], None] = lambda: None,
) -> CopiedObject:
    """Verify a copy that was written; ``ready`` raises an error to stop the verification.

    With ``verify`` as ``size``, no extra request is made. A wrong copy is ``object.mismatch``; it
    is deleted unless another run has written the object again.
    """
    etag_is_md5 = way.target.features.etag_is_md5
    check = content.check(written, etag_is_md5=etag_is_md5, stored_as_sent=stored_as_sent)
    if check or verify == "size":
        return CopiedObject.of(way.info, written, content.crc32c, check or "size")
    copy = _read_copy(way, content, ready=ready)
    if copy.check:
        return copy
    if copy.mirror_etag != written.etag:
        hint = "another run copies another state of the source; run again when it is done"
        raise _mismatch(way.target, written, f"the copy has {copy.checksum}", hint)
    raise removed(way.target, written, f"the copy has {copy.checksum}")


def _read_copy(
    way: ObjectCopy,
    content: Content,
    *,
    if_match: str | None = None,
    ready: Callable[[], None] = lambda: None,
) -> CopiedObject:
    """Read a copy, and compare it with its source; another object has an empty check."""
    copy, crc32c, md5 = _digests(way.target, way.key, if_match, ready)
    if md5 in (content.md5, content.read_md5):
        return CopiedObject.of(way.info, copy, crc32c, "md5")
    expected = content.crc32c
    if expected is None:
        _, expected, _ = _digests(way.source, way.info.key, way.info.etag or None, ready)
    return CopiedObject.of(way.info, copy, crc32c, "crc32c" if crc32c == expected else "")


def _digests(
    store: Readable, key: str, if_match: str | None, ready: Callable[[], None]
) -> tuple[ObjectInfo, str, str]:
    crc32c, md5 = 0, hashlib.md5(usedforsecurity=False)
    with store.open(key, if_match=if_match) as reader:
        for buffer in reader:
            ready()
            data = bytes(buffer)
            crc32c = google_crc32c.extend(crc32c, data)
            md5.update(data)
    return reader.info, format_crc32c(crc32c), md5.hexdigest()


def removed(target: Store, written: ObjectInfo, what: str) -> ObjectError:
    """Delete a wrong copy; return the error to raise."""
    with suppress(NotFoundError):
        target.delete(written.key)
    return _mismatch(target, written, what, "the copy was removed; run again")


def _mismatch(target: Store, written: ObjectInfo, what: str, hint: str) -> ObjectError:
    where = object_url(target.url, written.key)
    message = f"{what}; it is not that of its source"
    return ObjectError("object.mismatch", message, where=where, hint=hint)


_UNKNOWN_TYPES = ("", "binary/octet-stream", "application/octet-stream")
"""Types that S3 and GCS report for an object that was written without a type."""


def adopt(way: ObjectCopy, verify: str) -> CopiedObject | None:
    """Return the target's copy if it has the source's content, type and user metadata, else None.

    The content is compared like the content of any copy.
    """
    source, info, target = way.source, way.info, way.target
    try:
        copy = _described(target, way.key, None)
        if copy.size_bytes != info.size_bytes:
            return None
        if not _same_description(_described(source, info.key, info.etag), copy):
            return None
        if verify == "size":
            return CopiedObject.of(way.info, copy, crc32c_of(copy.checksum), "size")
        return _compared(way, copy)
    except (NotFoundError, PreconditionError) as error:
        if error.where.startswith(target.url) and not error.where.startswith(source.url):
            return None  # not there, or replaced while it was read
        raise


def _described(store: Readable, key: str, if_match: str | None) -> ObjectInfo:
    """Return an object with its type and user metadata, which some HEAD requests omit."""
    info = store.head(key)
    if info.content_type is not None and info.metadata is not None:
        return info
    length = 1 if info.size_bytes else None
    with store.open(key, length=length, if_match=if_match) as reader:
        return reader.info


def _same_description(source: ObjectInfo, copy: ObjectInfo) -> bool:
    """Whether type, user metadata and headers of a copy are the source's, where both are known."""
    pairs = (source.metadata, copy.metadata), (source.headers, copy.headers)
    for expected, actual in pairs:
        if expected is not None and actual is not None and dict(expected) != dict(actual):
            return False
    if source.content_type is None or copy.content_type is None:
        return True
    return _type(source) == _type(copy)


def _type(info: ObjectInfo) -> str:
    return "" if info.content_type in _UNKNOWN_TYPES else str(info.content_type)


def _compared(way: ObjectCopy, copy: ObjectInfo) -> CopiedObject | None:
    info = way.info
    content = Content(known_md5(way.source, info.etag), info.checksum)
    check = content.check(copy, etag_is_md5=way.target.features.etag_is_md5)
    if check:
        return CopiedObject.of(way.info, copy, content.crc32c or crc32c_of(copy.checksum), check)
    if info.checksum and copy.checksum:
        kind, colon, _ = info.checksum.partition(":")
        if copy.checksum.startswith(kind + colon):
            return None
    read = _read_copy(way, content, if_match=copy.etag)
    return CopiedObject.of(info, copy, read.checksum, read.check) if read.check else None
