"""Writes an S3 object as a stream.

An object that fits into one upload part is written with a single PUT, so that its etag is the MD5
of its content. A larger object is a multipart upload.

The bytes of a stream are gone once they are written, so that `larder.store.retry` could not send
them again: requests are repeated here.

Limits: https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html (10,000 parts of 5 MiB
to 5 GiB).
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from larder.errors import LarderError
from larder.store.base import Buffer, ObjectInfo, Writer
from larder.store.calls import Call
from larder.store.interrupt import in_thread
from larder.store.retry import RetryPolicy, repeated
from larder.store.s3.multipart import completed
from larder.store.s3.objects import S3Objects, crc32c_of

_PARTS_PER_STEP = 1000
_MOST_PART_BYTES = 2 << 30
_POLICY = RetryPolicy()


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
        objects: Sends the requests.
        full_key: The object's key in the bucket.
        call: For messages.
        part_bytes: Size of the first upload parts.
        parts_in_flight: Number of upload parts sent at once.
        like: Has the content type and metadata of the new object.
        policy: How requests are repeated.
    """

    def __init__(
        self,
        objects: S3Objects,
        full_key: str,
        call: Call,
        part_bytes: int,
        parts_in_flight: int,
        like: ObjectInfo | None = None,
        policy: RetryPolicy = _POLICY,
    ) -> None:
        self._objects = objects
        self._full_key = full_key
        self._call = call
        self._first_bytes = part_bytes
        self._in_flight = parts_in_flight
        self._like = like
        self._policy = policy
        self._buffer = bytearray()
        self._size_bytes = 0
        self._upload = ""
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
            with suppress(LarderError):
                self._objects.abort_upload(self._full_key, self._call, self._upload)

    def _send(self) -> None:
        """Start sending the buffer as an upload part."""
        if self._pool is None:
            self._upload = repeated(
                lambda: self._objects.begin_upload(self._full_key, self._call, self._like),
                self._policy,
            )
            self._pool = ThreadPoolExecutor(self._in_flight, thread_name_prefix="larder-part")
        while len(self._sending) >= self._in_flight:
            self._etags.append(self._sending.popleft().result())
        self._sent += 1
        part, self._buffer = self._buffer, bytearray()
        self._sending.append(in_thread(self._pool, partial(self._send_part, self._sent, part)))

    def _send_part(self, number: int, data: bytearray) -> str:
        crc32c = crc32c_of([data])

        def send() -> str:
            etag, _ = self._objects.send_part(
                self._full_key,
                self._call,
                self._upload,
                number,
                [data],
                crc32c=crc32c,
                md5=None,
                signed=True,
            )
            return etag

        return repeated(send, self._policy)

    def _put(self) -> str:
        def put() -> str:
            etag, _ = self._objects.put(
                self._full_key, self._call, self._buffer, None, like=self._like
            )
            return etag

        return repeated(put, self._policy)

    def _complete(self) -> str:
        if self._buffer:
            self._send()
        while self._sending:
            self._etags.append(self._sending.popleft().result())
        return repeated(
            lambda: (
                completed(self._objects, self._full_key, self._call, self._upload, self._etags).etag
            ),
            self._policy,
        )

    def _close(self) -> None:
        self._done = True
        self._buffer = bytearray()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
