"""Writes GCS objects: small ones in one request, others as a resumable upload; and copies them.

A single request includes the CRC32C of the content, and the server refuses other bytes. A resumable
upload is sent in chunks of 16 MiB. After a failure, the server is asked for the received length and
gets the rest, so a chunk is kept in memory until acknowledged. The object becomes visible with the
last chunk. Its CRC32C is then compared with the CRC32C of the bytes sent, and an object that
differs is deleted. The upload of a killed process disappears after a week, and costs nothing.

https://cloud.google.com/storage/docs/resumable-uploads

A copy within GCS is a rewrite, which takes several requests if the bytes have to move.
https://cloud.google.com/storage/docs/json_api/v1/objects/rewrite
"""

from __future__ import annotations

import json
import secrets
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import google_crc32c

from larder.errors import LarderError, ObjectError, PreconditionError, RetryableError, StoreError
from larder.manifest.digest import format_crc32c
from larder.store.base import BucketPrefix, Buffer, ObjectInfo, Readable
from larder.store.buckets import PartsWriter
from larder.store.calls import Call, conflict
from larder.store.gcs.answers import FIELDS, info_of_resource, resource_of
from larder.store.gcs.bucket import GcsBucket, GcsObject, Request, Response
from larder.store.interrupt import grace

_NOT_COPIED = (400, 403)
_INCOMPLETE = 308
_CANCELLED = 499
_FORGOTTEN = (404, 410)


def put_object(
    target: GcsObject,
    data: Buffer,
    *,
    like: ObjectInfo | None = None,
    md5: str | None = None,
    generation: str | None = None,
) -> ObjectInfo:
    """Write an object in one request; the server verifies its CRC32C, and the MD5 if given.

    ``generation`` is the state to replace: ``0`` for no object, None for any.
    """
    crc = google_crc32c.extend(0, bytes(data))
    resource = resource_of(target.call.full_key, like, crc, md5)
    boundary = f"larder-{secrets.token_hex(16)}"
    head = (
        f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n"
        f"{json.dumps(resource)}\r\n--{boundary}\r\nContent-Type: {resource['contentType']}\r\n\r\n"
    )
    headers = {"Content-Type": f"multipart/related; boundary={boundary}"}
    body = (head.encode(), data, f"\r\n--{boundary}--\r\n".encode())
    query = {"uploadType": "multipart", "ifGenerationMatch": generation}
    return _verified(target, _insert(target, query, headers, body), crc)


def _insert(
    target: GcsObject,
    query: dict[str, str | None],
    headers: dict[str, str],
    body: tuple[Buffer, ...],
) -> Response:
    bucket = target.bucket
    query |= {"fields": FIELDS, "kmsKeyName": bucket.access.kms_key}
    request = Request("POST", f"/upload{bucket.path()}", query, headers, body)
    return bucket.send(request, target.call)


def _verified(target: GcsObject, response: Response, crc: int) -> ObjectInfo:
    """Describe the written object; delete it, with an error, if its CRC32C is wrong."""
    call = target.call
    info = info_of_resource(response.json(), call.key, call.where)
    if info.checksum in (None, format_crc32c(crc)):
        return info
    hint = "the object was removed; run again"
    try:
        with grace(), suppress(PreconditionError):  # another run replaced it
            target.send("DELETE", {"ifGenerationMatch": info.generation})
    except LarderError:
        hint = "remove the object, then run again"
    message = f"the store has received {info.checksum}, but {format_crc32c(crc)} was sent"
    raise ObjectError("object.mismatch", message, where=call.where, hint=hint)


class GcsWriter(PartsWriter):
    """Holds at most three chunks in memory: being filled, waiting, and being sent."""

    def __init__(self, target: GcsObject, like: ObjectInfo | None) -> None:
        super().__init__(1)
        self._target, self._like = target, like
        self._crc = 0
        self._upload: _ResumableUpload | None = None
        self._response: Future[Response | None] | None = None

    def _send(self, *, last: bool = False) -> None:
        if self._upload is None:
            self._upload = self._target.bucket.again(
                partial(_ResumableUpload, self._target, self._like)
            )
        self._sent()
        chunk = self._taken()
        self._crc = google_crc32c.extend(self._crc, bytes(chunk))
        self._response = self._in_thread(partial(self._upload.deliver, chunk, last=last))

    def _sent(self) -> Response | None:
        """Wait for the chunk in progress."""
        sending, self._response = self._response, None
        return sending.result() if sending else None

    def _commit(self) -> ObjectInfo:
        if self._upload is None:
            put = partial(put_object, self._target, self._buffer, like=self._like)
            return self._target.bucket.again(put)
        self._send(last=True)
        response = self._sent()
        assert response is not None, "the last chunk ends the upload"
        return _verified(self._target, response, self._crc)

    def _cancel(self) -> None:
        if self._upload is not None:
            with suppress(LarderError):
                self._upload.cancel()


class _ResumableUpload:
    """A resumable upload that the server has begun. Its path is a secret that allows writing.

    Requests go to the endpoint that began the upload, whatever host the server names.
    """

    def __init__(self, target: GcsObject, like: ObjectInfo | None) -> None:
        self._target = target
        self._received_bytes = 0  # at the server
        self._certain = True  # whether the number is certain
        resource = resource_of(target.call.full_key, like)
        headers = {
            "Content-Type": "application/json; charset=UTF-8",
            "X-Upload-Content-Type": resource["contentType"],
        }
        body = (json.dumps(resource).encode(),)
        with grace():
            response = _insert(target, {"uploadType": "resumable"}, headers, body)
        session = urlsplit(response.headers.get("location", ""))
        if not session.path.startswith("/"):
            message = "the store begins an upload without an address"
            raise StoreError("store.refused", message, where=target.call.where)
        path = session.path.removeprefix(target.bucket.account.http.path)
        self._path = f"{path}?{session.query}"

    def deliver(self, chunk: Buffer, *, last: bool) -> Response | None:
        """Send the next chunk until the server has all of it; return the last chunk's response."""
        start = self._received_bytes
        end = start + len(chunk)
        while True:
            attempt = partial(self._attempt, memoryview(chunk), start, end, last=last)
            response = self._target.bucket.again(attempt)
            if response.status != _INCOMPLETE:
                return response
            if self._received_bytes == end and not last:
                return None

    def _attempt(self, chunk: memoryview, start: int, end: int, *, last: bool) -> Response:
        """Send the missing bytes of a chunk; after a failure, first ask for the received length."""
        total = end if last else "*"
        if not self._certain:
            response = self._put(f"*/{total}", None, start, end)
            self._certain = True
            if response.status != _INCOMPLETE or self._received_bytes == end:
                return response
        self._certain = False
        before = self._received_bytes
        rest = chunk[before - start :]
        content_range = f"{before}-{end - 1}/{total}" if rest else f"*/{total}"
        response = self._put(content_range, rest, start, end)
        if response.status == _INCOMPLETE and self._received_bytes == before:
            message = "the store took none of the bytes"
            raise RetryableError("store.unavailable", message, where=self._target.call.where)
        self._certain = True
        return response

    def _put(self, content_range: str, body: memoryview | None, start: int, end: int) -> Response:
        """Send bytes, if any, and record the received length from the answer's range."""
        request = Request(
            "PUT",
            self._path,
            {"fields": FIELDS},
            {"Content-Range": f"bytes {content_range}"},
            (body,) if body else (),
            (_INCOMPLETE, *_FORGOTTEN),
        )
        response = self._target.bucket.send(request, self._target.call)
        if response.status == _INCOMPLETE:
            last = response.headers.get("range", "").rpartition("-")[2]
            self._received_bytes = int(last) + 1 if last.isdecimal() else 0
        if response.status in _FORGOTTEN or not start <= self._received_bytes <= end:
            # The bytes in memory do not suffice: the caller has to send the whole object again.
            message, where = "the store has lost the upload", self._target.call.where
            raise ObjectError("object.unreadable", message, where=where, hint="run again")
        return response

    def cancel(self) -> None:
        request = Request("DELETE", self._path, accept=(_CANCELLED, *_FORGOTTEN))
        with grace():
            self._target.bucket.send(request, self._target.call)


def rewrite(
    source: Readable, place: BucketPrefix, info: ObjectInfo, target: GcsObject
) -> ObjectInfo | None:
    """Copy one state of an object, as it was listed, with its content type and metadata.

    The target's account must be allowed to read the source, which is at ``place``. Return None if
    the server refuses to copy; raise ``object.changed`` if the object has another etag.
    """
    bucket, read = target.bucket, Call(source.url, info.key)
    path = f"{bucket.path(place.prefix + info.key, bucket=place.bucket)}/rewriteTo"
    path += target.path.removeprefix("/storage/v1")
    pays = place.payer is not None
    payer = (place.payer or bucket.account.project or None) if pays else None
    query = {
        "ifSourceGenerationMatch": info.generation or _generation(source, info, read),
        "destinationKmsKeyName": bucket.access.kms_key,
        "userProject": payer,
        "fields": f"done,rewriteToken,resource({FIELDS})",
    }
    while True:
        request = Request("POST", path, query, accept=_NOT_COPIED)
        answer = bucket.again(partial(_step, bucket, request, read))
        if answer is None:
            return None
        if answer.get("done") is True:
            return info_of_resource(
                answer.get("resource") or {}, target.call.key, target.call.where
            )
        query["rewriteToken"] = answer.get("rewriteToken")
        if not query["rewriteToken"]:
            message = "the answer to a copy cannot be parsed"
            raise StoreError("store.refused", message, where=target.call.where)


def _step(bucket: GcsBucket, request: Request, call: Call) -> dict[str, Any] | None:
    response = bucket.send(request, call)
    if response.status not in _NOT_COPIED:
        return response.json()
    error = response.error()
    if isinstance(error, RetryableError):
        raise error
    return None


def _generation(source: Readable, info: ObjectInfo, call: Call) -> str | None:
    current = source.head(info.key)
    if current.etag != info.etag:
        raise conflict(call)
    return current.generation
