"""Copies one object through this machine, verified, in bounded memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress

import google_crc32c

from larder.bounds import WRITER_BYTES
from larder.copy.allowance import CopyLimits
from larder.copy.proof import Content, CopiedObject, ObjectCopy, crc32c_of, known_md5, prove
from larder.errors import NotFoundError, ObjectError
from larder.manifest.digest import format_crc32c
from larder.store.base import ObjectInfo
from larder.store.etags import StreamCheck, changed, is_md5, open_listed

WHOLE_BYTES = 8 * 1024**2
"""Size of the largest object that is held in memory as a whole."""

_PIECES_BYTES = 4 * 1024**2
"""Memory for an object that is read in pieces of a mebibyte and written to a file."""


def copy_object(
    way: ObjectCopy, limits: CopyLimits, ready: Callable[[], None] = lambda: None
) -> CopiedObject:
    """Copy one object and verify the copy; see `larder.copy.proof`.

    The object is read on the condition that its etag is the listed one. A copy that fails
    verification is deleted.
    """
    info = way.info
    if info.size_bytes <= WHOLE_BYTES:
        with limits.budget.holding(2 * info.size_bytes):
            ready()
            with open_listed(way.source, info.key, info.size_bytes, info.etag) as reader:
                data = b"".join(reader)
            return copy_content(way, data, reader.info, limits)
    local = way.target.features.local_path
    with limits.budget.holding(_PIECES_BYTES if local else WRITER_BYTES):
        return _copy_stream(way, limits, ready)


def copy_content(
    way: ObjectCopy, data: bytes, like: ObjectInfo | None, limits: CopyLimits
) -> CopiedObject:
    """Write an object that was read, and verify the copy.

    ``like`` is the object as it was opened; a directory needs no such description.
    """
    source, info, target = way.source, way.info, way.target
    if len(data) != info.size_bytes:
        raise changed(way.where, info.size_bytes, len(data))
    crc32c = google_crc32c.value(data)
    read_crc32c = format_crc32c(crc32c)
    kept = like.checksum if like else crc32c_of(info.etag)
    _check_read(way, kept, read_crc32c)
    md5, compares_md5 = known_md5(source, info.etag), target.features.etag_is_md5
    content = Content(md5, kept, None, read_crc32c)
    if md5 is not None and not compares_md5:
        # The target cannot tell that something else was read.
        content = _proved(way, data, crc32c, content)
    elif md5 is None and compares_md5:
        content = content._replace(read_md5=_md5(data))
    try:
        written = _put(way, data, like, content)
    except ObjectError as error:
        if error.code != "object.mismatch" or content.md5 is None:
            raise
        content = _proved(way, data, crc32c, content)._replace(read_md5=_md5(data))
        written = _put(way, data, like, content)
    expected = content.md5 if compares_md5 and is_md5(written.etag) else None
    if expected and written.etag != expected:
        # One of the two etags is no MD5, or the bytes were damaged on their way here.
        try:
            content = _proved(way, data, crc32c, content)._replace(read_md5=_md5(data))
        except ObjectError:
            with suppress(NotFoundError):
                if target.head(way.key).etag == written.etag:
                    target.delete(way.key)
            raise
    stored_as_sent = target.features.local_path
    return prove(way, written, content, verify=limits.verify, stored_as_sent=stored_as_sent)


def _put(way: ObjectCopy, data: bytes, like: ObjectInfo | None, content: Content) -> ObjectInfo:
    return way.target.put(way.key, data, like=like, md5=content.read_md5 or content.md5, sync=False)


def _check_read(way: ObjectCopy, checksum: str | None, crc32c: str) -> None:
    """Compare the bytes that were read with the checksum that the source keeps, if any."""
    kept = crc32c_of(checksum)
    if kept and kept != crc32c:
        message = f"the bytes that were read have {crc32c}, but the store keeps {kept}"
        hint = "the network or the store damages data; run again"
        raise ObjectError("object.mismatch", message, where=way.where, hint=hint)


def _proved(way: ObjectCopy, data: bytes, crc32c: int, content: Content) -> Content:
    """Return the content after comparing the bytes with the etag; see `larder.store.etags`."""
    check = StreamCheck(way.source, way.info.key, way.info.etag, way.info.size_bytes)
    check.add(data, crc32c)
    md5 = way.info.etag if check.check() else None
    return Content(md5, content.kept, md5, content.read_crc32c)


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _copy_stream(way: ObjectCopy, limits: CopyLimits, ready: Callable[[], None]) -> CopiedObject:
    source, info = way.source, way.info
    check = StreamCheck(source, info.key, info.etag, info.size_bytes)
    with (
        open_listed(source, info.key, info.size_bytes, info.etag) as reader,
        way.target.writer(way.key, like=reader.info, sync=False) as writer,
    ):
        for buffer in reader:
            ready()
            piece = buffer if isinstance(buffer, bytes) else bytes(buffer)
            check.add(piece)
            writer.write(piece)
        md5 = info.etag if check.check() else None
        content = Content(md5, reader.info.checksum, md5, format_crc32c(check.crc32c))
        _check_read(way, reader.info.checksum, format_crc32c(check.crc32c))
        written = writer.commit()
    stored_as_sent = way.target.features.local_path
    return prove(way, written, content, verify=limits.verify, stored_as_sent=stored_as_sent)
