"""Decides whether what lies at the target is the source's object, so that it need not be copied.

Another program (Skyplane) put it there, so nothing but its content counts.
"""

from __future__ import annotations

from larder.copy.proof import Content, CopiedObject, crc32c_of, known_md5, read_copy
from larder.errors import NotFoundError, PreconditionError
from larder.store.base import ObjectInfo, Readable

_UNKNOWN_TYPES = ("", "binary/octet-stream", "application/octet-stream")
"""What S3 and GCS say about an object that was written without a type."""


def adopt(
    source: Readable, target: Readable, info: ObjectInfo, key: str, verify: str
) -> CopiedObject | None:
    """The copy, if the target has the source's object with its type and user metadata; else None.

    The content is compared as that of any copy is (`larder.copy.proof`).
    """
    try:
        copy = _described(target, key, None)
        if copy.size_bytes != info.size_bytes:
            return None
        if not _same_description(_described(source, info.key, info.etag), copy):
            return None
        if verify == "size":
            return CopiedObject.of(info, copy, crc32c_of(copy.checksum), "size")
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
    content = Content(known_md5(source, info.etag), info.checksum)
    check = content.check(copy, etag_is_md5=target.features.etag_is_md5)
    if check:
        return CopiedObject.of(info, copy, content.crc32c or crc32c_of(copy.checksum), check)
    if info.checksum and copy.checksum and _kind(info) == _kind(copy):
        return None
    read = read_copy(source, info, content, target, copy.key, if_match=copy.etag)
    return CopiedObject.of(info, copy, read.crc32c, read.check) if read.check else None


def _kind(info: ObjectInfo) -> str:
    return (info.checksum or "").partition(":")[0]
