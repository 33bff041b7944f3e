"""Writes GCS objects: small ones in one request, others as a resumable upload.

In one request, the CRC32C of the content is sent with it, and the server refuses anything else. A
resumable upload is sent in order, in chunks of 16 MiB. If a chunk fails, the server is asked how
much it has, and gets the rest: so the chunk is kept in memory until it is acknowledged. The object
is visible when the last chunk has been received; its CRC32C is then compared with that of the
bytes sent, and an object that differs is deleted. An upload that was neither finished nor cancelled
(because the process was killed) disappears after a week, and costs nothing.

https://cloud.google.com/storage/docs/resumable-uploads
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, TypeVar

import google_crc32c

from larder.errors import LarderError, NotFoundError, ObjectError, RetryableError, StoreError
from larder.store.base import Buffer, ObjectInfo, Writer
from larder.store.gcs_access import GcsAccess, Request, Response
from larder.store.gcs_objects import FIELDS, info_of_resource, resource_of
from larder.store.interrupt import Interrupt, interrupted_by
from larder.store.s3_errors import Call

__all__ = ["CHUNK_BYTES", "GcsWriter", "put_object"]

CHUNK_BYTES = 16 << 20
"""Size of the chunks of a resumable upload, a multiple of 256 KiB."""

T = TypeVar("T")

_INCOMPLETE = 308
_CANCELLED = 499


def put_object(
    access: GcsAccess,
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
        access: Sends the request.
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
    response = access.send(
        Request(
            "POST",
            _upload_path(access),
            {**_query(access, "multipart"), "ifGenerationMatch": generation},
            {"Content-Type": f"multipart/related; boundary={boundary}"},
            (head.encode(), data, f"\r\n--{boundary}--\r\n".encode()),
        ),
        call,
    )
    return _verified(access, full_key, call, response, crc)


class GcsWriter(Writer):
    """See `larder.store.base.Writer`.

    It holds at most three chunks in memory: one that fills, one that waits, one that is sent.

    Args:
        access: Sends the requests.
        full_key: The object's key in the bucket.
        call: For messages.
        like: Another object whose content type and metadata the object gets.
        again: Makes a call, and repeats it while it fails for a time.
        chunk_bytes: Size of the chunks, a multiple of 256 KiB.
    """

    def __init__(
        self,
        access: GcsAccess,
        full_key: str,
        call: Call,
        like: ObjectInfo | None,
        again: Callable[[Callable[[], Any]], Any],
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._access, self._full_key, self._call, self._like = access, full_key, call, like
        self._again = again
        self._chunk_bytes = chunk_bytes
        self._buffer = bytearray()
        self._crc = 0
        self._begun_bytes = 0
        self._upload: _Upload | None = None
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
            info = _verified(self._access, self._full_key, self._call, response, self._crc)
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
                self._access,
                self._full_key,
                self._call,
                self._buffer,
                like=self._like,
            )
        )
        return info

    def _send(self, *, last: bool) -> None:
        """Start to send the buffer, after what is being sent."""
        if self._upload is None or self._pool is None:
            self._upload = self._again(
                lambda: _Upload(self._access, self._full_key, self._call, self._like)
            )
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="larder-chunk")
        self._sent()
        chunk, self._buffer = self._buffer, bytearray()
        self._crc = google_crc32c.extend(self._crc, bytes(chunk))
        start = self._begun_bytes
        self._begun_bytes += len(chunk)
        deliver = partial(self._upload.deliver, chunk, start, last=last, again=self._again)
        self._sending = self._pool.submit(_under, interrupted_by(), deliver)

    def _sent(self) -> Response | None:
        """Wait for what is being sent."""
        sending, self._sending = self._sending, None
        return sending.result() if sending else None

    def _close(self) -> None:
        self._done = True
        self._buffer = bytearray()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


class _Upload:
    """A resumable upload that the server has begun. Its URL is a secret: whoever has it may write.

    Args:
        access: Sends the requests.
        full_key: The object's key in the bucket.
        call: For messages.
        like: Another object whose content type and metadata the object gets.
    """

    def __init__(
        self, access: GcsAccess, full_key: str, call: Call, like: ObjectInfo | None
    ) -> None:
        self._access, self._call = access, call
        resource = resource_of(full_key, like)
        response = access.send(
            Request(
                "POST",
                _upload_path(access),
                _query(access, "resumable"),
                {
                    "Content-Type": "application/json; charset=UTF-8",
                    "X-Upload-Content-Type": resource["contentType"],
                },
                (json.dumps(resource).encode(),),
            ),
            call,
        )
        self._url = response.headers.get("Location", "")
        if not self._url.startswith("http"):
            message = "the store begins an upload without an address"
            raise StoreError("store.refused", message, where=call.where)

    def deliver(
        self,
        chunk: Buffer,
        start: int,
        *,
        last: bool,
        again: Callable[[Callable[[], Any]], Any],
    ) -> Response | None:
        """Send a chunk until the server has all of it; the object if it was the last.

        Args:
            chunk: Its bytes.
            start: Where it begins in the object.
            last: Whether the object ends with it.
            again: Repeats a call.
        """
        delivery = _Delivery(self._access, self._url, self._call, chunk, start, last)
        while True:
            response: Response = again(delivery.attempt)
            if response.status != _INCOMPLETE:
                return response
            if delivery.received == delivery.end and not last:
                return None

    def cancel(self) -> None:
        """Tell the server to forget it."""
        request = Request("DELETE", self._url, accept=(_CANCELLED, 404, 410))
        self._access.send(request, self._call)


class _Delivery:
    """One chunk, and how much of it the server has."""

    def __init__(
        self, access: GcsAccess, url: str, call: Call, chunk: Buffer, start: int, last: bool
    ) -> None:
        self.end = start + len(chunk)
        self.received = start
        self._access, self._url, self._call = access, url, call
        self._chunk, self._start = chunk, start
        self._total = str(self.end) if last else "*"
        self._certain = True

    def attempt(self) -> Response:
        """Send what is missing; after a failure, ask first what that is.

        Raises:
            RetryableError: Of this request; or the upload has to begin again, which is for others.
            LarderError: See `larder.store.gcs_errors`.
        """
        if not self._certain:
            response = self._put(f"bytes */{self._total}", ())
            self._take(response)
            self._certain = True
            if response.status != _INCOMPLETE or self.received == self.end:
                return response
        self._certain = False
        rest = memoryview(self._chunk)[self.received - self._start :]
        before = self.received
        spread = f"{self.received}-{self.end - 1}" if rest else "*"
        response = self._put(f"bytes {spread}/{self._total}", (rest,) if rest else ())
        self._take(response)
        if response.status == _INCOMPLETE and self.received == before:
            raise self._failed("the store took none of the bytes")
        self._certain = True
        return response

    def _put(self, spread: str, data: tuple[Buffer, ...]) -> Response:
        request = Request(
            "PUT",
            self._url,
            {"fields": FIELDS},
            {"Content-Range": spread},
            data,
            accept=(_INCOMPLETE, 404, 410),
        )
        response = self._access.send(request, self._call)
        if response.status in (404, 410):
            raise self._lost()
        return response

    def _take(self, response: Response) -> None:
        """Note how much the server says that it has."""
        if response.status != _INCOMPLETE:
            return
        said = response.headers.get("Range", "").rpartition("-")[2]
        received = int(said) + 1 if said.isdecimal() else 0
        if not self._start <= received <= self.end:
            raise self._lost()
        self.received = received

    def _failed(self, message: str) -> RetryableError:
        return RetryableError("store.unavailable", message, where=self._call.where)

    def _lost(self) -> LarderError:
        # Nothing that is still in memory can mend it: whoever has the object sends it again.
        message = "the store has lost the upload"
        hint = "run again"
        return ObjectError("object.unreadable", message, where=self._call.where, hint=hint)


def _under(interrupt: Interrupt | None, call: Callable[[], T]) -> T:
    """Make a call in another thread that is stopped with this one."""
    with interrupt.active() if interrupt else nullcontext():
        return call()


def _upload_path(access: GcsAccess) -> str:
    return "/upload" + access.object_path("")


def _query(access: GcsAccess, kind: str) -> dict[str, str | None]:
    return {"uploadType": kind, "fields": FIELDS, "kmsKeyName": access.access.kms_key}


def _verified(
    access: GcsAccess, full_key: str, call: Call, response: Response, crc: int
) -> ObjectInfo:
    """The object that was written, if its CRC32C is that of the bytes sent; else it is deleted."""
    info = info_of_resource(response.json(), call.key, call.where)
    if info.checksum in (None, f"crc32c:{crc:08x}"):
        return info
    query = {"ifGenerationMatch": info.generation}
    request = Request("DELETE", access.object_path(full_key), query)
    with suppress(LarderError, NotFoundError):
        access.send(request, call)
    message = f"the store has received {info.checksum}, but crc32c:{crc:08x} was sent"
    hint = "the object was removed; run again"
    raise ObjectError("object.mismatch", message, where=call.where, hint=hint)
