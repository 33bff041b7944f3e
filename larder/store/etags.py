"""Etags as proof of content: which etags are an MD5, and the checks if an MD5 differs.

In S3, the etag of an object written with a single PUT is the MD5 of its content, unless it is
encrypted with SSE-KMS or SSE-C: then it has the same form but proves nothing.
https://docs.aws.amazon.com/AmazonS3/latest/API/API_Object.html
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import google_crc32c

from larder.errors import ObjectError, PreconditionError
from larder.store.base import Readable, Reader
from larder.store.etag_trust import EtagTrust
from larder.store.keys import object_url
from larder.units import format_count

_MD5 = re.compile(r"[0-9a-f]{32}")


def plain_etag(text: str) -> str:
    """Return an etag without its quotes; a weak etag keeps its prefix ``W/`` (RFC 9110, 8.8.3)."""
    return text.strip('"').replace('W/"', "W/")


def is_weak(etag: str) -> bool:
    """Whether an etag is weak: a weak etag meets no condition of a request, and proves no bytes."""
    return etag.startswith("W/")


def are_equal(one: str, other: str) -> bool:
    """Compare two etags weakly, as RFC 9110 says: a proxy may weaken one of them."""
    return one.removeprefix("W/") == other.removeprefix("W/")


def is_md5(etag: str) -> bool:
    """Whether an etag has the form of an MD5 (multipart etags do not)."""
    return len(etag) == 32 and _MD5.fullmatch(etag) is not None  # len() rules out most others


def etag_of_parts(etags: Sequence[str]) -> str:
    """Return S3's etag of a multipart object: the MD5 of the parts' MD5s, and their number."""
    try:
        joined = b"".join(bytes.fromhex(etag.strip('"').removeprefix("W/")) for etag in etags)
    except ValueError:
        return ""
    return f"{hashlib.md5(joined, usedforsecurity=False).hexdigest()}-{len(etags)}"


def changed(where: str, listed_bytes: int = 0, read_bytes: int = 0) -> PreconditionError:
    """Return the error of an object that changed since it was listed.

    The sizes are named if they differ; the object may be even longer.
    """
    message = "it changed since it was listed"
    if listed_bytes != read_bytes:
        message += f": {listed_bytes:,} bytes then, now {read_bytes:,} or more"
    hint = "run again when nothing else writes to it"
    return PreconditionError("object.changed", message, where=where, hint=hint)


def too_short(where: str, size_bytes: int, offset: int) -> ObjectError:
    """Return the error of a range that begins beyond the end of an object."""
    message = f"it has only {format_count(size_bytes, 'byte')}, none at {offset}"
    return ObjectError("object.truncated", message, where=where)


def open_listed(
    store: Readable, key: str, size_bytes: int, etag: str, spare_bytes: int = 0
) -> Reader:
    """Open an object as it was listed; the etag may be empty. Raise ``object.changed`` before
    reading if the object is longer than listed by more than ``spare_bytes``.
    """
    reader = store.open(key, if_match=etag or None)
    if reader.info.size_bytes > size_bytes + spare_bytes:
        reader.close()
        raise changed(object_url(store.url, key), size_bytes, reader.info.size_bytes)
    return reader


def read_listed(
    store: Readable, key: str, size_bytes: int, etag: str, spare_bytes: int = 0
) -> bytes:
    """Read an object as it was listed; see `open_listed`."""
    with open_listed(store, key, size_bytes, etag, spare_bytes) as reader:
        return b"".join(reader)


def checked_crc32c(store: Readable, key: str, etag: str, listed_bytes: int, data: bytes) -> int:
    """Return the CRC32C of an object's content, after the checks of `StreamCheck`."""
    if len(data) == listed_bytes and not (is_md5(etag) and store.features.etag_is_md5):
        crc32c: int = google_crc32c.value(data)
        return crc32c
    content = StreamCheck(store, key, etag, listed_bytes)
    content.add(data)
    content.check()
    return content.crc32c


def checked_crc32cs(
    store: Readable, objects: Sequence[tuple[str, int, str]], contents: Sequence[bytes]
) -> list[int]:
    """Apply `checked_crc32c` to several objects, as of `larder.store.base.Readable.get_each`."""
    as_listed = list(map(len, contents)) == [size_bytes for _, size_bytes, _ in objects]
    if as_listed and not store.features.etag_is_md5:
        return list(map(google_crc32c.value, contents))
    return [
        checked_crc32c(store, key, etag, size_bytes, data)
        for (key, size_bytes, etag), data in zip(objects, contents, strict=True)
    ]


class StreamCheck:
    """Computes checksums of an object's bytes as they are read, and compares them with the listing.
    The listed etag may be empty.
    """

    def __init__(self, store: Readable, key: str, etag: str, listed_bytes: int) -> None:
        self.crc32c = 0
        self.size_bytes = 0
        self._store, self._key, self._etag = store, key, etag
        self._listed_bytes = listed_bytes
        provable = is_md5(etag) and store.features.etag_is_md5
        self._md5 = hashlib.md5(usedforsecurity=False) if provable else None

    def add(self, data: bytes, crc32c: int | None = None) -> None:
        """Add the next bytes; ``crc32c``, if known, covers everything up to their end."""
        self.size_bytes += len(data)
        self.crc32c = google_crc32c.extend(self.crc32c, data) if crc32c is None else crc32c
        if self._md5 is not None:
            self._md5.update(data)

    def check(self) -> bool:
        """Compare the content with the listed size and etag; return whether the etag proved it.

        If the MD5 differs, the object is read again, unless the store's etags are known not to be
        MD5. Two equal reads count as the store's bytes.
        """
        if self.size_bytes != self._listed_bytes:
            where = object_url(self._store.url, self._key)
            raise changed(where, self._listed_bytes, self.size_bytes)
        if self._md5 is None:
            return False
        trust = self._store.features.etag_trust or EtagTrust()
        if self._md5.hexdigest() == self._etag:
            trust.agreed()
            return True
        trust.explain(self._read_again)
        return False

    def _read_again(self) -> None:
        again = 0
        with self._store.open(self._key, if_match=self._etag) as reader:
            for buffer in reader:
                again = google_crc32c.extend(again, bytes(buffer))
        if again != self.crc32c:
            raise ObjectError(
                "object.mismatch",
                "two reads of the object gave different bytes",
                where=object_url(self._store.url, self._key),
                hint="the network or the store damages data; run again",
            )
