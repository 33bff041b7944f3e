"""Writes an S3 object as a stream.

An object that fits into one upload part is written with a single PUT, so that its etag is the MD5
of its content. A larger object is a multipart upload, which is invisible until it is completed; an
upload that was neither completed nor aborted (because the process was killed) takes up storage
until a lifecycle rule (AbortIncompleteMultipartUpload) removes it.

The client itself repeats requests here: the bytes of a stream are gone once they are written, so
that `larder.store.retry` could not send them again.

Limits: https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html (10,000 parts of 5 MiB
to 5 GiB).
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from larder.errors import LarderError, NotFoundError
from larder.store.base import Buffer, ObjectInfo, Writer
from larder.store.s3_access import S3Access
from larder.store.s3_boto import boto_errors
from larder.store.s3_errors import Call

__all__ = ["S3Writer", "part_size_bytes"]

_PARTS_PER_STEP = 1000
_MOST_PART_BYTES = 2 << 30


def part_size_bytes(first_bytes: int, index: int) -> int:
    """The size of an upload part: doubles after every thousand parts, up to 2 GiB.

    So 10,000 parts, starting with 16 MiB, hold the 5 TiB that an object may have, even if its size
    is not known in advance.

    Args:
        first_bytes: Size of the first thousand parts.
        index: Index of the part, from 0.
    """
    doubled = first_bytes << (index // _PARTS_PER_STEP)
    return max(first_bytes, min(doubled, _MOST_PART_BYTES))


class S3Writer(Writer):
    """See `larder.store.base.Writer`.

    It holds at most ``parts_in_flight + 1`` upload parts in memory.

    Args:
        access: Provides the client.
        full_key: The object's key in the bucket.
        call: For messages.
        part_bytes: Size of the first upload parts.
        parts_in_flight: Number of upload parts sent at once.
    """

    def __init__(
        self, access: S3Access, full_key: str, call: Call, part_bytes: int, parts_in_flight: int
    ) -> None:
        self._client = access.retrying_boto
        self._target = {"Bucket": access.bucket, "Key": full_key}
        self._call = call
        self._first_bytes = part_bytes
        self._in_flight = parts_in_flight
        self._buffer = bytearray()
        self._size_bytes = 0
        self._upload: dict[str, str] | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._sent = 0
        self._sending: deque[Future[str]] = deque()
        self._etags: list[str] = []
        self._done = False

    def write(self, data: Buffer) -> None:
        """Append bytes; waits while the maximum number of upload parts is being sent."""
        assert not self._done, "the writer is committed or aborted"
        with memoryview(data).cast("B") as view:
            self._size_bytes += len(view)
            start = 0
            while start < len(view):
                room = part_size_bytes(self._first_bytes, self._sent) - len(self._buffer)
                if not room:
                    self._send()
                    continue
                self._buffer += view[start : start + room]
                start += room

    def commit(self) -> ObjectInfo:
        """Make the object visible.

        ``modified_us`` of the result is from this machine's clock; `head` has the store's.
        """
        assert not self._done, "the writer is committed or aborted"
        etag = self._complete() if self._upload else self._put()
        self._close()
        return ObjectInfo(self._call.key, self._size_bytes, etag, time.time_ns() // 1000)

    def abort(self) -> None:
        """Discard the upload parts, if the store allows it."""
        if self._done:
            return
        self._close()
        if self._upload:
            with suppress(LarderError), boto_errors(self._call):
                self._client.abort_multipart_upload(**self._target, **self._upload)

    def _send(self) -> None:
        """Start sending the buffer as an upload part."""
        if self._upload is None or self._pool is None:
            with boto_errors(self._call):
                begun = self._client.create_multipart_upload(**self._target)
            self._upload = {"UploadId": begun["UploadId"]}
            self._pool = ThreadPoolExecutor(self._in_flight, thread_name_prefix="larder-part")
        while len(self._sending) >= self._in_flight:
            self._etags.append(self._sending.popleft().result())
        self._sent += 1
        part, self._buffer = self._buffer, bytearray()
        self._sending.append(self._pool.submit(self._send_part, self._upload, self._sent, part))

    def _send_part(self, upload: dict[str, str], number: int, data: bytearray) -> str:
        with boto_errors(self._call):
            part = self._client.upload_part(**self._target, **upload, PartNumber=number, Body=data)
        return str(part["ETag"])

    def _put(self) -> str:
        with boto_errors(self._call):
            answer = self._client.put_object(**self._target, Body=self._buffer)
        return str(answer["ETag"]).strip('"')

    def _complete(self) -> str:
        assert self._upload is not None
        if self._buffer:
            self._send()
        while self._sending:
            self._etags.append(self._sending.popleft().result())
        parts = [{"PartNumber": n, "ETag": etag} for n, etag in enumerate(self._etags, start=1)]
        try:
            with boto_errors(self._call):
                answer = self._client.complete_multipart_upload(
                    **self._target, **self._upload, MultipartUpload={"Parts": parts}
                )
        except NotFoundError:
            # The upload is gone if the answer to an earlier, successful request was lost.
            return self._completed_before()
        # Ceph 16 does not return it here.
        return str(answer.get("ETag", "")).strip('"') or self._etag_there()

    def _etag_there(self) -> str:
        with boto_errors(self._call):
            answer = self._client.head_object(**self._target)
        return str(answer["ETag"]).strip('"')

    def _completed_before(self) -> str:
        etag = self._etag_there()
        if etag != _etag_of_parts(self._etags):
            message = "the multipart upload is gone"
            raise NotFoundError("object.missing", message, where=self._call.where)
        return etag

    def _close(self) -> None:
        self._done = True
        self._buffer = bytearray()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def _etag_of_parts(etags: list[str]) -> str:
    """S3's etag of a multipart object: the MD5 of the parts' MD5s, and their number."""
    try:
        joined = b"".join(bytes.fromhex(etag.strip('"')) for etag in etags)
    except ValueError:
        return ""
    return f"{hashlib.md5(joined, usedforsecurity=False).hexdigest()}-{len(etags)}"
