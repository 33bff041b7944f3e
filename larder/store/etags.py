"""Etags as proof of content: where they are an md5, and what to do where they seem not to be.

S3's etag of an object that was written in one PUT is the md5 of its content, unless it is
encrypted with SSE-KMS or SSE-C; then it has the same form and proves nothing.
https://docs.aws.amazon.com/AmazonS3/latest/API/API_Object.html

That an etag is no md5 cannot be told from the object alone, so the first that differs is read
twice. What comes twice alike is what the store has; from then on this process takes etags of that
store that differ for what they are there. Then a damaged transfer is found by its length and by
what the connection checks itself (TLS), as with every object that was written in parts; etags that
do agree go on proving what they prove. Where some etags agreed, one odd object (rotten on the
server's disk, or the only encrypted one) says nothing of the others: several of them have to
differ first.
"""

from __future__ import annotations

import hashlib
import re

import google_crc32c

from larder.errors import ObjectError, PreconditionError
from larder.store.base import Readable
from larder.store.etag_trust import EtagTrust
from larder.store.keys import object_url

__all__ = ["ContentCheck", "changed", "is_md5"]

_MD5 = re.compile(r"[0-9a-f]{32}")


def is_md5(etag: str) -> bool:
    """Whether an etag has the form of an md5 (a multipart etag has not)."""
    return _MD5.fullmatch(etag) is not None


def changed(where: str, listed_bytes: int, read_bytes: int) -> PreconditionError:
    """The error that an object is not the one that was listed.

    Args:
        where: Its address.
        listed_bytes: Its size then.
        read_bytes: Its size now, as far as that is known.
    """
    message = f"{listed_bytes:,} bytes were listed, {read_bytes:,} or more came"
    if listed_bytes == read_bytes:
        message = "it is another one of the same size"
    hint = "run again once nothing writes to the source"
    return PreconditionError("object.changed", message, where=where, hint=hint)


class ContentCheck:
    """Sums what comes of an object, and compares it at the end with what was listed.

    Args:
        store: Where the object is read.
        key: The object.
        etag: Its etag, or nothing.
        listed_bytes: Its size.

    Attributes:
        crc32c: Of the bytes so far.
        size_bytes: How many they are.
    """

    def __init__(self, store: Readable, key: str, etag: str, listed_bytes: int) -> None:
        self.crc32c = 0
        self.size_bytes = 0
        self._store, self._key, self._etag = store, key, etag
        self._listed_bytes = listed_bytes
        provable = is_md5(etag) and store.features.etag_is_md5
        self._md5 = hashlib.md5(usedforsecurity=False) if provable else None

    def add(self, data: bytes) -> None:
        """The next bytes."""
        self.size_bytes += len(data)
        self.crc32c = google_crc32c.extend(self.crc32c, data)
        if self._md5 is not None:
            self._md5.update(data)

    def check(self) -> bool:
        """Compare all that came with the size and the etag; whether the etag proved it.

        If the md5 differs, the object is read once more, unless etags of this store are known to
        be no md5: bytes that come twice alike are what the store has.

        Raises:
            PreconditionError: ``object.changed``: another number of bytes came.
            ObjectError: ``object.mismatch``: two reads gave different bytes.
            LarderError: What reading raises.
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
