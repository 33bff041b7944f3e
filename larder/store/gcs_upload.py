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

from larder.errors import LarderError, ObjectError, RetryableError, StoreError
from larder.store.base import Buffer, ObjectInfo
from larder.store.gcs_access import GcsAccess, Request, Response
from larder.store.gcs_objects import FIELDS, resource_of
from larder.store.s3_errors import Call

__all__ = ["ResumableUpload", "upload_path", "upload_query"]

_INCOMPLETE = 308
_CANCELLED = 499


class ResumableUpload:
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
                upload_path(access),
                upload_query(access, "resumable"),
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


def upload_path(access: GcsAccess) -> str:
    """The path that new objects are sent to."""
    return "/upload" + access.object_path("")


def upload_query(access: GcsAccess, kind: str) -> dict[str, str | None]:
    """The parameters of a write; ``kind`` is ``multipart`` or ``resumable``."""
    return {"uploadType": kind, "fields": FIELDS, "kmsKeyName": access.access.kms_key}
