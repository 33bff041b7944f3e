"""Decides whether what lies at the target is the source's object, so that it need not be copied.

Another program (Skyplane) put it there, so nothing but its content counts.
"""

from __future__ import annotations

import hashlib

import google_crc32c

from larder.copy.object import CopiedObject
from larder.errors import NotFoundError, PreconditionError
from larder.manifest.digest import format_crc32c
from larder.store.base import ObjectInfo, Readable
from larder.store.etags import is_md5

_UNKNOWN_TYPES = ("", "binary/octet-stream", "application/octet-stream")
"""What S3 and GCS say about an object that was written without a type."""


def adopt(
    source: Readable, target: Readable, info: ObjectInfo, key: str, verify: str
) -> CopiedObject | None:
    """The copy, if the target has the source's object with its type and user metadata; else None.

    The content is compared by the first of these that both sides have: etags that are the MD5 of
    the content; checksums of one kind; the target's bytes with the source's checksum or etag; the
    bytes of both.
    """
    try:
        found = _described(target, key, None)
        if found.size_bytes != info.size_bytes:
            return None
        if not _same_description(_described(source, info.key, info.etag), found):
            return None
        if verify == "size":
            return _copy(info, found, _crc32c(found), "size")
        return _compared(source, target, info, found)
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


def _same_description(source: ObjectInfo, found: ObjectInfo) -> bool:
    """Whether a copy has the type and user metadata of its source, as far as both can have any."""
    theirs, ours = source.metadata, found.metadata
    if theirs is not None and ours is not None and dict(theirs) != dict(ours):
        return False
    if source.content_type is None or found.content_type is None:
        return True
    return _type(source) == _type(found)


def _type(info: ObjectInfo) -> str:
    return "" if info.content_type in _UNKNOWN_TYPES else str(info.content_type)


def _compared(
    source: Readable, target: Readable, info: ObjectInfo, found: ObjectInfo
) -> CopiedObject | None:
    if source.features.etag_is_md5 and target.features.etag_is_md5 and info.etag == found.etag:
        if is_md5(info.etag):
            return _copy(info, found, _crc32c(found) or _crc32c(info), "md5")
    elif info.checksum and found.checksum and _kind(info) == _kind(found):
        same = info.checksum == found.checksum
        return _copy(info, found, _crc32c(info), _kind(info)) if same else None
    return _read(source, target, info, found)


def _read(
    source: Readable, target: Readable, info: ObjectInfo, found: ObjectInfo
) -> CopiedObject | None:
    """Compare by reading the target, and the source too if it has nothing to compare with."""
    crc32c, md5 = _digests(target, found)
    checksum = format_crc32c(crc32c)
    if known := _crc32c(info):
        return _copy(info, found, checksum, "crc32c") if known == checksum else None
    if source.features.etag_is_md5 and info.etag == md5:
        return _copy(info, found, checksum, "md5")
    # An etag of another form, or of an encrypted object: it proves nothing.
    theirs, _ = _digests(source, info)
    return _copy(info, found, checksum, "crc32c") if theirs == crc32c else None


def _digests(store: Readable, info: ObjectInfo) -> tuple[int, str]:
    """CRC32C and MD5 of an object, on the condition that it is still the same."""
    crc32c, md5 = 0, hashlib.md5(usedforsecurity=False)
    with store.open(info.key, if_match=info.etag) as reader:
        for buffer in reader:
            data = bytes(buffer)
            crc32c = google_crc32c.extend(crc32c, data)
            md5.update(data)
    return crc32c, md5.hexdigest()


def _kind(info: ObjectInfo) -> str:
    return (info.checksum or "").partition(":")[0]


def _crc32c(info: ObjectInfo) -> str | None:
    return info.checksum if _kind(info) == "crc32c" else None


def _copy(info: ObjectInfo, found: ObjectInfo, checksum: str | None, check: str) -> CopiedObject:
    return CopiedObject(
        info.key,
        info.size_bytes,
        info.etag,
        found.modified_us,
        checksum,
        found.etag,
        check,
    )
