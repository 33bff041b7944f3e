"""A resumable upload to GCS: chunks that are sent in order, and again where they were interrupted.

If a chunk fails, the server is asked how much it has, and gets the rest: so a chunk is kept in
memory until it is acknowledged. An upload that was neither finished nor cancelled (because the
process was killed) disappears after a week, and costs nothing.

https://cloud.google.com/storage/docs/resumable-uploads
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from larder.errors import LarderError, ObjectError, RetryableError, StoreError
from larder.store.base import Buffer, ObjectInfo
from larder.store.gcs.bucket import GcsBucket, Response
from larder.store.gcs.objects import FIELDS, resource_of
from larder.store.s3_errors import Call

__all__ = ["ResumableUpload", "upload_path", "upload_query"]

_INCOMPLETE = 308
_CANCELLED = 499
_FORGOTTEN = (404, 410)


class ResumableUpload:
    """A resumable upload that the server has begun. Its path is a secret: whoever has it may write.

    Args:
        bucket: Sends the requests.
        full_key: The object's key in the bucket.
        call: For messages.
        like: Another object whose content type and metadata the object gets.
    """

    def __init__(
        self, bucket: GcsBucket, full_key: str, call: Call, like: ObjectInfo | None
    ) -> None:
        self._bucket, self._call = bucket, call
        resource = resource_of(full_key, like)
        headers = {
            "Content-Type": "application/json; charset=UTF-8",
            "X-Upload-Content-Type": resource["contentType"],
        }
        query = upload_query(bucket, "resumable")
        body = (json.dumps(resource).encode(),)
        response = bucket.send(call, "POST", upload_path(bucket), query, headers, body)
        session = urlsplit(response.headers.get("location", ""))
        if not session.path.startswith("/"):
            message = "the store begins an upload without an address"
            raise StoreError("store.refused", message, where=call.where)
        # At the server that began it, whichever name the server has for itself.
        path = session.path.removeprefix(bucket.client.http.path)
        self._path = f"{path}?{session.query}" if session.query else path

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
        delivery = _Delivery(self, chunk, start, last)
        while True:
            response: Response = again(delivery.attempt)
            if response.status != _INCOMPLETE:
                return response
            if delivery.received == delivery.end and not last:
                return None

    def put(self, spread: str, body: tuple[Buffer, ...] = ()) -> Response:
        """Send the bytes of a Content-Range, or ask how much has arrived."""
        response = self._bucket.send(
            self._call,
            "PUT",
            self._path,
            {"fields": FIELDS},
            {"Content-Range": f"bytes {spread}"},
            body,
            accept=(_INCOMPLETE, *_FORGOTTEN),
        )
        if response.status in _FORGOTTEN:
            raise self.lost()
        return response

    def cancel(self) -> None:
        """Tell the server to forget it."""
        self._bucket.send(self._call, "DELETE", self._path, accept=(_CANCELLED, *_FORGOTTEN))

    def failed(self, message: str) -> RetryableError:
        """The error if the next attempt may succeed."""
        return RetryableError("store.unavailable", message, where=self._call.where)

    def lost(self) -> LarderError:
        """The error if the server lacks bytes that are not in memory any more."""
        message = "the store has lost the upload"
        return ObjectError("object.unreadable", message, where=self._call.where, hint="run again")


class _Delivery:
    """One chunk, and how much of it the server has."""

    def __init__(self, upload: ResumableUpload, chunk: Buffer, start: int, last: bool) -> None:
        self.end = start + len(chunk)
        self.received = start
        self._upload, self._chunk, self._start = upload, chunk, start
        self._total = str(self.end) if last else "*"
        self._certain = True

    def attempt(self) -> Response:
        """Send what is missing; after a failure, ask first what that is.

        Raises:
            LarderError: Of this request; or the upload is lost.
        """
        if not self._certain:
            response = self._upload.put(f"*/{self._total}")
            self._note(response)
            self._certain = True
            if response.status != _INCOMPLETE or self.received == self.end:
                return response
        self._certain = False
        before = self.received
        rest = memoryview(self._chunk)[before - self._start :]
        spread = f"{before}-{self.end - 1}" if rest else "*"
        response = self._upload.put(f"{spread}/{self._total}", (rest,) if rest else ())
        self._note(response)
        if response.status == _INCOMPLETE and self.received == before:
            raise self._upload.failed("the store took none of the bytes")
        self._certain = True
        return response

    def _note(self, response: Response) -> None:
        """Note how much the server says that it has."""
        if response.status != _INCOMPLETE:
            return
        end = response.headers.get("range", "").rpartition("-")[2]
        received = int(end) + 1 if end.isdecimal() else 0
        if not self._start <= received <= self.end:
            raise self._upload.lost()
        self.received = received


def upload_path(bucket: GcsBucket) -> str:
    """The path that new objects are sent to."""
    return "/upload" + bucket.path()


def upload_query(bucket: GcsBucket, kind: str) -> dict[str, str | None]:
    """The parameters of a write; ``kind`` is ``multipart`` or ``resumable``."""
    return {"uploadType": kind, "fields": FIELDS, "kmsKeyName": bucket.access.kms_key}
