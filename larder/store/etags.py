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

from larder.errors import ObjectError
from larder.store.base import Store
from larder.store.etag_trust import EtagTrust
from larder.store.keys import object_url

__all__ = ["ContentCheck", "is_md5"]

_MD5 = re.compile(r"[0-9a-f]{32}")


def is_md5(etag: str) -> bool:
    """Whether an etag has the form of an md5 (a multipart etag has not)."""
    return _MD5.fullmatch(etag) is not None


class ContentCheck:
    """What came of an object: sums it on the way, and holds it against its etag at the end.

    Args:
        store: Where the object is read.
        key: The object.
        etag: Its etag, or nothing.

    Attributes:
        crc32c: Of the bytes so far.
        size_bytes: How many they are.
    """

    def __init__(self, store: Store, key: str, etag: str) -> None:
        self.crc32c = 0
        self.size_bytes = 0
        self._store, self._key, self._etag = store, key, etag
        provable = store.features.etag_is_md5 and is_md5(etag)
        self._md5 = hashlib.md5(usedforsecurity=False) if provable else None

    def add(self, data: bytes) -> None:
        """The next bytes."""
        self.size_bytes += len(data)
        self.crc32c = google_crc32c.extend(self.crc32c, data)
        if self._md5 is not None:
            self._md5.update(data)

    def check(self) -> bool:
        """Hold all that came against the etag; whether the etag proved it.

        If the md5 differs, the object is read once more, unless etags of this store are known to
        be no md5: bytes that come twice alike are what the store has.

        Raises:
            ObjectError: ``object.mismatch``: two reads gave different bytes.
            LarderError: What reading raises.
        """
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
