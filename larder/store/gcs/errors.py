"""What GCS's answers mean.

::

    answer                                                      error              code
    404, the bucket does not exist                              StoreError         store.missing
    404 for a store, or when writing                            StoreError         store.missing
    404 for a key                                               NotFoundError      object.missing
    401                                                         StoreError         store.denied
    403 rateLimitExceeded, userRateLimitExceeded                RetryableError     store.unavailable
    403 about the billing account, or a disabled service        StoreError         store.denied
    403 for a key                                               ObjectError        object.unreadable
    403 for a store                                             StoreError         store.denied
    400 that asks who pays                                      StoreError         store.denied
    400 about a digest, when writing                            RetryableError     store.unavailable
    400 about the name of the object                            ObjectError        object.bad_key
    412 when writing if absent                                  PreconditionError  object.exists
    412                                                         PreconditionError  object.changed
    416                                                         ObjectError        object.truncated
    408, 429, 500, 502, 503, 504 and other 5xx, but 501         RetryableError     store.unavailable
    507                                                         StoreError         store.full
    no answer                                                   RetryableError     store.unavailable
    any other, when reading an object                           ObjectError        object.unreadable
    any other                                                   StoreError         store.refused

Codes: https://cloud.google.com/storage/docs/json_api/v1/status-codes. The message of an answer is
shown, in which Google names the account and the permission that is missing; tokens are masked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from larder.errors import (
    LarderError,
    NotFoundError,
    ObjectError,
    PreconditionError,
    RetryableError,
    StoreError,
)
from larder.store.http import BrokenError
from larder.store.s3_errors import Call

__all__ = ["CREDENTIALS_HINT", "broken", "gcs_error"]

CREDENTIALS_HINT = (
    "run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS"
)
_NO_BUCKET = "bucket does not exist"
_RATE = {"rateLimitExceeded", "userRateLimitExceeded"}
_UNPAID = {"accountDisabled", "billingNotEnabled", "UserProjectAccountProblem", "SERVICE_DISABLED"}
_BUSY = {408, 429}
_MOST_WAIT_SECONDS = 60.0
_TOKEN = re.compile(r"\bya29\.[\w.-]+|(?<=upload_id=)[\w-]+|(?<=Bearer )[\w.-]+")
_XML_MESSAGE = re.compile(r"<(?:Message|Details)>(.*?)</", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer that is an error: its status, Google's word and sentence, and how long to wait."""

    status: int
    reason: str
    message: str
    wait_seconds: float

    def __str__(self) -> str:
        said = f"the store answers {self.status} {self.reason}".strip()
        detail = _TOKEN.sub("(token)", " ".join(self.message.split()))[:300]
        return f"{said}: {detail}" if detail else said


def gcs_error(status: int, body: bytes, retry_after: str, call: Call) -> LarderError:
    """The error that an answer means; the table is at the top of this module.

    Args:
        status: HTTP status.
        body: The body: JSON usually, sometimes text or XML, often nothing.
        retry_after: The header of this name, or nothing.
        call: The request.
    """
    by_status = {
        400: _bad_request,
        401: _denied,
        403: _forbidden,
        404: _missing,
        412: _conflict,
        416: _beyond,
    }
    wait = min(float(retry_after), _MOST_WAIT_SECONDS) if retry_after.isdecimal() else 0.0
    answer = _Answer(status, *_parsed(body), wait)
    error = by_status[status](answer, call) if status in by_status else None
    return error or _other(answer, call)


def _parsed(body: bytes) -> tuple[str, str]:
    """Reason and message of the body of an error; may be empty."""
    text = body.decode("utf-8", "replace")
    try:
        error = json.loads(text)["error"]
    except (ValueError, LookupError, TypeError):
        message = _XML_MESSAGE.search(text)
        return "", message[1] if message else "" if text.lstrip().startswith("<") else text
    if not isinstance(error, dict):
        return "", str(error)
    details = error.get("errors")
    first = details[0] if isinstance(details, list) and details else {}
    reason = first.get("reason") if isinstance(first, dict) else ""
    return str(reason or ""), str(error.get("message") or "")


def _bad_request(answer: _Answer, call: Call) -> LarderError | None:
    message = answer.message.lower()
    if "requester pays" in message or "user project" in message:
        hint = "set requester_pays: true, and project: to the project that pays"
        text = "the bucket's requester pays, and no project was named"
        return StoreError("store.denied", text, where=call.store_url, hint=hint)
    if call.writing and ("crc32c" in message or "md5" in message):
        damaged = "the store has received other bytes than were sent"
        return RetryableError("store.unavailable", damaged, where=call.where)
    if call.key and "object name" in message:
        return ObjectError("object.bad_key", str(answer), where=call.where)
    return None


def _denied(answer: _Answer, call: Call) -> LarderError:
    return StoreError("store.denied", str(answer), where=call.store_url, hint=CREDENTIALS_HINT)


def _forbidden(answer: _Answer, call: Call) -> LarderError:
    if answer.reason in _RATE:
        return _busy(answer, call)
    if answer.reason in _UNPAID or "billing" in answer.message.lower():
        hint = "enable billing in the project of the bucket, and in the one that pays"
        return StoreError("store.denied", str(answer), where=call.store_url, hint=hint)
    if call.key:
        return ObjectError("object.unreadable", str(answer), where=call.where)
    hint = "request permission to list and read the bucket"
    return StoreError("store.denied", str(answer), where=call.store_url, hint=hint)


def _missing(answer: _Answer, call: Call) -> LarderError:
    if call.key and not call.writing and _NO_BUCKET not in answer.message:
        return NotFoundError("object.missing", "no such object", where=call.where)
    hint = "create it, or fix the URL"
    return StoreError("store.missing", "the bucket does not exist", where=call.store_url, hint=hint)


def _conflict(answer: _Answer, call: Call) -> LarderError:
    del answer
    if call.if_absent:
        return PreconditionError("object.exists", "it already exists", where=call.where)
    return PreconditionError("object.changed", "it changed since it was listed", where=call.where)


def _beyond(answer: _Answer, call: Call) -> LarderError:
    del answer
    message = "the object ends before the range begins"
    return ObjectError("object.truncated", message, where=call.where)


def _other(answer: _Answer, call: Call) -> LarderError:
    status = answer.status
    if status == 507:
        return StoreError("store.full", str(answer), where=call.store_url)
    if status in _BUSY or (status >= 500 and status != 501):
        return _busy(answer, call)
    if call.key and not call.writing:
        return ObjectError("object.unreadable", str(answer), where=call.where)
    return StoreError("store.refused", str(answer), where=call.where)


def _busy(answer: _Answer, call: Call) -> RetryableError:
    error = RetryableError("store.unavailable", str(answer), where=call.where)
    error.after_seconds = answer.wait_seconds
    return error


@contextmanager
def broken(call: Call) -> Iterator[None]:
    """Raise what it means for a call that there was no answer, or no complete one.

    Raises:
        StoreError: The server's certificate is refused.
        RetryableError: Anything else.
    """
    try:
        yield
    except BrokenError as error:
        if "certificate" in str(error):
            hint = "check the endpoint's certificate, or set SSL_CERT_FILE"
            where = call.store_url
            raise StoreError("store.refused", "TLS fails", where=where, hint=hint) from error
        raise RetryableError("store.unavailable", str(error), where=call.where) from error
