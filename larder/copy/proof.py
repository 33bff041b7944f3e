"""What proves that a copy has the content of its source: one ladder for every way of copying.

Without a further request, by the first of these that applies::

    check    what proves it
    md5      the copy's etag is the MD5 of the source, or of the bytes that were read
    crc32c   the copy's store keeps the CRC32C of the bytes that were read, or the checksum that
             the source's store keeps
    md5      the bytes that were sent are stored, and have the MD5 of the source
    crc32c   the bytes that were sent are stored, and the source has no MD5, or keeps their CRC32C

A directory stores what is sent, and so does an upload of which each part is proved
(`larder.store.s3.multipart`) and the etag is made of those of its parts. If none applies, the copy
is read, and compared with what is known of the source; if that is too little, the source is read,
too. With ``verify: size``, it is only compared by its size (check ``size``).

What another program (Skyplane) put at the target is adopted if its content is proved so: nothing
else of it counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
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
        made = copy.modified_us, checksum, copy.etag, check
        return CopiedObject(source.key, source.size_bytes, source.etag, *made)


@dataclass(frozen=True, slots=True)
class ObjectCopy:
    """An object to copy: as it was listed at its source, and its key at the target."""

    source: Readable
    info: ObjectInfo
    target: Store
    key: str

    @property
    def where(self) -> str:
        """The object at the source, for messages."""
        return object_url(self.source.url, self.info.key)


def known_md5(store: Readable, etag: str) -> str | None:
    """The MD5 of the content of an object in hex, if its etag says it."""
    features = store.features
    trusted = features.etag_trust is None or not features.etag_trust.misleading
    return etag if features.etag_is_md5 and is_md5(etag) and trusted else None


def crc32c_of(checksum: str | None) -> str | None:
    """A checksum, if it is a CRC32C."""
    return checksum if (checksum or "").startswith("crc32c:") else None


class Content(NamedTuple):
    """What is known of the content of an object in the source.

    ``md5`` is what its etag says, ``kept`` the checksum that its store keeps; ``read_md5`` and
    ``read_crc32c`` (with ``crc32c:`` before it) are of the bytes that were read from it.
    """

    md5: str | None = None
    kept: str | None = None
    read_md5: str | None = None
    read_crc32c: str | None = None

    @property
    def crc32c(self) -> str | None:
        """The checksum for the record of its copy."""
        return self.read_crc32c or crc32c_of(self.kept)

    def check(
        self, copy: ObjectInfo, *, etag_is_md5: bool, stored_as_sent: bool = False
    ) -> str | None:
        """What proves a copy according to the table above; None if nothing does."""
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
    """Verify a copy that was written; ``ready`` raises an error to stop that.

    With ``verify`` as ``size``, only as far as it takes no extra request. A copy that is read may
    have been written again by another run; if nothing else did that and it is not the source's
    object, it is deleted, and the error is ``object.mismatch``.
    """
    etag_is_md5 = way.target.features.etag_is_md5
    check = content.check(written, etag_is_md5=etag_is_md5, stored_as_sent=stored_as_sent)
    if check is None and verify == "size":
        check = "size"
    if check:
        return CopiedObject.of(way.info, written, content.crc32c, check)
    copy = _read_copy(way, content, ready=ready)
    if copy.check:
        return CopiedObject.of(way.info, copy.info, copy.crc32c, copy.check)
    if copy.info.etag != written.etag:
        hint = "another run copies another state of the source; run again when it is done"
        raise _mismatch(way.target, written, f"the copy has {copy.crc32c}", hint)
    raise removed(way.target, written, f"the copy has {copy.crc32c}")


class _ReadCopy(NamedTuple):
    """A copy as it was read: ``check`` says what proves it, and is None if it is another object."""

    info: ObjectInfo
    crc32c: str
    check: str | None


def _read_copy(
    way: ObjectCopy,
    content: Content,
    *,
    if_match: str | None = None,
    ready: Callable[[], None] = lambda: None,
) -> _ReadCopy:
    """Read a copy, and compare it with its source."""
    copy, crc32c, md5 = _digests(way.target, way.key, if_match, ready)
    if md5 in (content.md5, content.read_md5):
        return _ReadCopy(copy, crc32c, "md5")
    expected = content.crc32c
    if expected is None:
        _, expected, _ = _digests(way.source, way.info.key, way.info.etag or None, ready)
    return _ReadCopy(copy, crc32c, "crc32c" if crc32c == expected else None)


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
    """Delete a copy that is wrong; returns the error to raise."""
    with suppress(NotFoundError):
        target.delete(written.key)
    return _mismatch(target, written, what, "the copy was removed; run again")


def _mismatch(target: Store, written: ObjectInfo, what: str, hint: str) -> ObjectError:
    where = object_url(target.url, written.key)
    message = f"{what}; it is not that of its source"
    return ObjectError("object.mismatch", message, where=where, hint=hint)


_UNKNOWN_TYPES = ("", "binary/octet-stream", "application/octet-stream")
"""What S3 and GCS say about an object that was written without a type."""


def adopt(way: ObjectCopy, verify: str) -> CopiedObject | None:
    """The copy, if the target has the source's object with its type and user metadata; else None.

    The content is compared as that of any copy is.
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
    """An object with its type and user metadata, which not every HEAD request tells."""
    info = store.head(key)
    if info.content_type is not None and info.metadata is not None:
        return info
    length = 1 if info.size_bytes else None
    with store.open(key, length=length, if_match=if_match) as reader:
        return reader.info


def _same_description(source: ObjectInfo, copy: ObjectInfo) -> bool:
    """Whether a copy has the type, user metadata and headers of its source, as far as both can."""
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
    if info.checksum and copy.checksum and _kind(info) == _kind(copy):
        return None
    read = _read_copy(way, content, if_match=copy.etag)
    return CopiedObject.of(way.info, copy, read.crc32c, read.check) if read.check else None


def _kind(info: ObjectInfo) -> str:
    return (info.checksum or "").partition(":")[0]
