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
        copy = _described(target, key, None)
        if copy.size_bytes != info.size_bytes:
            return None
        if not _same_description(_described(source, info.key, info.etag), copy):
            return None
        if verify == "size":
            return CopiedObject.of(info, copy, _crc32c(copy), "size")
        return _compared(source, target, info, copy)
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
    """Whether a copy has the type and user metadata of its source, as far as both can have any."""
    expected, actual = source.metadata, copy.metadata
    if expected is not None and actual is not None and dict(expected) != dict(actual):
        return False
    if source.content_type is None or copy.content_type is None:
        return True
    return _type(source) == _type(copy)


def _type(info: ObjectInfo) -> str:
    return "" if info.content_type in _UNKNOWN_TYPES else str(info.content_type)


def _compared(
    source: Readable, target: Readable, info: ObjectInfo, copy: ObjectInfo
) -> CopiedObject | None:
    if source.features.etag_is_md5 and target.features.etag_is_md5 and info.etag == copy.etag:
        if is_md5(info.etag):
            return CopiedObject.of(info, copy, _crc32c(copy) or _crc32c(info), "md5")
    elif info.checksum and copy.checksum and _kind(info) == _kind(copy):
        same = info.checksum == copy.checksum
        return CopiedObject.of(info, copy, _crc32c(info), _kind(info)) if same else None
    return _read(source, target, info, copy)


def _read(
    source: Readable, target: Readable, info: ObjectInfo, copy: ObjectInfo
) -> CopiedObject | None:
    """Compare by reading the target, and the source too if it has nothing to compare with."""
    crc32c, md5 = _digests(target, copy)
    checksum = format_crc32c(crc32c)
    if expected := _crc32c(info):
        return CopiedObject.of(info, copy, checksum, "crc32c") if expected == checksum else None
    if source.features.etag_is_md5 and info.etag == md5:
        return CopiedObject.of(info, copy, checksum, "md5")
    # An etag of another form, or of an encrypted object: it proves nothing.
    source_crc32c, _ = _digests(source, info)
    return CopiedObject.of(info, copy, checksum, "crc32c") if source_crc32c == crc32c else None


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
