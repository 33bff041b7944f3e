"""Writes GCS objects: small ones in one request, others as a resumable upload.

In one request, the CRC32C of the content is sent with it, and the server refuses anything else. A
resumable upload is sent in chunks of 16 MiB. The object is visible when the last of them has been
received; its CRC32C is then compared with that of the bytes sent, and an object that differs is
deleted.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import google_crc32c

from larder.errors import LarderError, ObjectError
from larder.manifest.crc import format_crc32c
from larder.store.base import Buffer, ObjectInfo, Writer
from larder.store.gcs.bucket import GcsBucket, Response
from larder.store.gcs.client import in_thread
from larder.store.gcs.objects import info_of_resource, resource_of
from larder.store.gcs.resumable import ResumableUpload, upload_path, upload_query
from larder.store.s3_errors import Call

__all__ = ["CHUNK_BYTES", "GcsWriter", "put_object"]

CHUNK_BYTES = 16 << 20
"""Size of the chunks of a resumable upload, a multiple of 256 KiB."""


def put_object(
    bucket: GcsBucket,
    full_key: str,
    call: Call,
    data: Buffer,
    *,
    like: ObjectInfo | None = None,
    md5: str | None = None,
    generation: str | None = None,
) -> ObjectInfo:
    """Write an object in one request; the server verifies its CRC32C.

    Args:
        bucket: Sends the request.
        full_key: The object's key in the bucket.
        call: For messages.
        data: Its content.
        like: Another object whose content type and metadata it gets.
        md5: MD5 of the content in hex, if it is known: verified as well.
        generation: The generation that it replaces; ``0`` if there must be none, None if any.
    """
    crc = google_crc32c.extend(0, bytes(data))
    resource = resource_of(full_key, like, crc, md5)
    boundary = f"larder-{secrets.token_hex(16)}"
    head = (
        f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n"
        f"{json.dumps(resource)}\r\n--{boundary}\r\nContent-Type: {resource['contentType']}\r\n\r\n"
    )
    query = {**upload_query(bucket, "multipart"), "ifGenerationMatch": generation}
    headers = {"Content-Type": f"multipart/related; boundary={boundary}"}
    body = (head.encode(), data, f"\r\n--{boundary}--\r\n".encode())
    response = bucket.send(call, "POST", upload_path(bucket), query, headers, body)
    return _verified(bucket, full_key, call, response, crc)


class GcsWriter(Writer):
    """See `larder.store.base.Writer`.

    It holds at most three chunks in memory: one that fills, one that waits, one that is sent.

    Args:
        bucket: Sends the requests.
        full_key: The object's key in the bucket.
        call: For messages.
        like: Another object whose content type and metadata the object gets.
        again: Makes a call, and repeats it while it fails for a time.
        chunk_bytes: Size of the chunks, a multiple of 256 KiB.
    """

    def __init__(
        self,
        bucket: GcsBucket,
        full_key: str,
        call: Call,
        like: ObjectInfo | None,
        again: Callable[[Callable[[], Any]], Any],
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._bucket, self._full_key, self._call, self._like = bucket, full_key, call, like
        self._again = again
        self._chunk_bytes = chunk_bytes
        self._buffer = bytearray()
        self._crc = 0
        self._begun_bytes = 0
        self._upload: ResumableUpload | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._sending: Future[Response | None] | None = None
        self._done = False

    def write(self, data: Buffer) -> None:
        """Append bytes; waits while a chunk is being sent and another is full."""
        assert not self._done, "the writer is committed or aborted"
        with memoryview(data).cast("B") as view:
            start = 0
            while start < len(view):
                room = self._chunk_bytes - len(self._buffer)
                if not room:
                    self._send(last=False)
                    continue
                self._buffer += view[start : start + room]
                start += room

    def commit(self) -> ObjectInfo:
        """Make the object visible."""
        assert not self._done, "the writer is committed or aborted"
        if self._upload is None:
            info = self._put()
        else:
            self._send(last=True)
            response = self._sent()
            assert response is not None, "the last chunk ends the upload"
            info = _verified(self._bucket, self._full_key, self._call, response, self._crc)
        self._close()
        return info

    def abort(self) -> None:
        """Discard what was sent."""
        if self._done:
            return
        self._close()
        if self._upload is not None:
            with suppress(LarderError):
                self._upload.cancel()

    def _put(self) -> ObjectInfo:
        info: ObjectInfo = self._again(
            lambda: put_object(
                self._bucket, self._full_key, self._call, self._buffer, like=self._like
            )
        )
        return info

    def _send(self, *, last: bool) -> None:
        """Start to send the buffer, after what is being sent."""
        if self._upload is None or self._pool is None:
            self._upload = self._again(
                lambda: ResumableUpload(self._bucket, self._full_key, self._call, self._like)
            )
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="larder-chunk")
        self._sent()
        chunk, self._buffer = self._buffer, bytearray()
        self._crc = google_crc32c.extend(self._crc, bytes(chunk))
        start = self._begun_bytes
        self._begun_bytes += len(chunk)
        deliver = partial(self._upload.deliver, chunk, start, last=last, again=self._again)
        self._sending = in_thread(self._pool, deliver)

    def _sent(self) -> Response | None:
        """Wait for what is being sent."""
        sending, self._sending = self._sending, None
        return sending.result() if sending else None

    def _close(self) -> None:
        self._done = True
        self._buffer = bytearray()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def _verified(
    bucket: GcsBucket, full_key: str, call: Call, response: Response, crc: int
) -> ObjectInfo:
    """The object that was written, if its CRC32C is that of the bytes sent; else it is deleted."""
    info = info_of_resource(response.json(), call.key, call.where)
    if info.checksum in (None, format_crc32c(crc)):
        return info
    with suppress(LarderError):
        query = {"ifGenerationMatch": info.generation}
        bucket.send(call, "DELETE", bucket.path(full_key), query)
    message = f"the store has received {info.checksum}, but {format_crc32c(crc)} was sent"
    hint = "the object was removed; run again"
    raise ObjectError("object.mismatch", message, where=call.where, hint=hint)
