"""Writes an S3 object as a stream.

An object that fits into one upload part is written with a single PUT, so that its etag is the MD5
of its content. A larger object is a multipart upload.

The bytes of a stream are gone once they are written, so that `larder.store.retry` could not send
them again: the requests of a stream are repeated by the store that the writer is given.

Limits: https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html (10,000 parts of 5 MiB
to 5 GiB).
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial

from larder.store.base import ObjectInfo, Upload, UploadedPart
from larder.store.buckets import PART_BYTES, PartsWriter
from larder.store.interrupt import in_thread
from larder.store.retry import RetryStore
from larder.store.s3.bucket import crc32c_of

_PARTS_PER_STEP = 1000
_MOST_PART_BYTES = 2 << 30


def part_size_bytes(index: int) -> int:
    """The size of an upload part, from 0: doubles after every thousand parts, up to 2 GiB.

    So 10,000 parts hold the 5 TiB that an object may have, even if its size is not known in
    advance.
    """
    return min(PART_BYTES << (index // _PARTS_PER_STEP), _MOST_PART_BYTES)


class S3Writer(PartsWriter):
    """See `larder.store.base.Writer`; holds at most one part more in memory than it sends."""

    def __init__(self, store: RetryStore, key: str, like: ObjectInfo | None, parts: int) -> None:
        super().__init__(parts)
        self._store = store
        self._key = key
        self._like = like
        self._most_sending = parts
        self._upload: Upload | None = None
        self._parts: list[Future[UploadedPart]] = []

    def _part_bytes(self) -> int:
        return part_size_bytes(len(self._parts))

    def _send(self) -> None:
        if self._upload is None:
            self._upload = self._store.begin_upload(self._key, like=self._like)
            assert self._upload is not None, "S3 has uploads"
        if len(self._parts) >= self._most_sending:
            self._parts[-self._most_sending].result()
        send = partial(_sent, self._upload, len(self._parts) + 1, self._taken())
        self._parts.append(in_thread(self._pool, send))

    def _commit(self) -> ObjectInfo:
        if self._upload is None:
            return self._store.put(self._key, self._buffer, like=self._like)
        if self._buffer:
            self._send()
        return self._upload.commit([part.result() for part in self._parts])

    def _cancel(self) -> None:
        if self._upload is not None:
            self._upload.abort()


def _sent(upload: Upload, number: int, part: bytearray) -> UploadedPart:
    return upload.send(number, [part], crc32c_of([part]))
