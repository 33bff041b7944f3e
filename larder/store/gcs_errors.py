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
from dataclasses import dataclass

from larder.errors import (
    LarderError,
    NotFoundError,
    ObjectError,
    PreconditionError,
    RetryableError,
    StoreError,
)
from larder.store.s3_errors import Call

__all__ = ["GCS_CREDENTIALS_HINT", "GcsAnswer", "gcs_error", "no_answer"]

GCS_CREDENTIALS_HINT = (
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
class GcsAnswer:
    """An answer that is an error.

    Attributes:
        status: HTTP status.
        reason: Google's word for it; may be empty.
        message: Google's sentence; may be empty.
        wait_seconds: How long the server asks to wait, at most a minute; 0 if it does not say.
    """

    status: int
    reason: str = ""
    message: str = ""
    wait_seconds: float = 0.0

    @staticmethod
    def of(status: int, body: bytes, retry_after: str = "") -> GcsAnswer:
        """Parse the body leniently: JSON usually, sometimes text or XML, often nothing."""
        reason, message = _said_in(body)
        wait = min(float(retry_after), _MOST_WAIT_SECONDS) if retry_after.isdecimal() else 0.0
        return GcsAnswer(status, reason, message, wait)


def _said_in(body: bytes) -> tuple[str, str]:
    """Reason and message of the body of an error."""
    text = body.decode("utf-8", "replace")
    try:
        error = json.loads(text)["error"]
    except (ValueError, LookupError, TypeError):
        found = _XML_MESSAGE.search(text)
        return "", found[1] if found else "" if text.lstrip().startswith("<") else text
    if not isinstance(error, dict):
        return "", str(error)
    details = error.get("errors")
    first = details[0] if isinstance(details, list) and details else {}
    reason = first.get("reason") if isinstance(first, dict) else ""
    return str(reason or ""), str(error.get("message") or "")


def gcs_error(answer: GcsAnswer, call: Call) -> LarderError:
    """The error that an answer means; the table is at the top of this module."""
    by_status = {
        400: _bad_request,
        401: _denied,
        403: _forbidden,
        404: _missing,
        412: _conflict,
        416: _beyond,
    }
    found = by_status.get(answer.status)
    return (found(answer, call) if found else None) or _other(answer, call)


def _bad_request(answer: GcsAnswer, call: Call) -> LarderError | None:
    message = answer.message.lower()
    if "requester pays" in message or "user project" in message:
        hint = "set requester_pays: true, and project: to the project that pays"
        text = "the bucket's requester pays, and no project was named"
        return StoreError("store.denied", text, where=call.store_url, hint=hint)
    if call.writing and ("crc32c" in message or "md5" in message):
        damaged = "the store has received other bytes than were sent"
        return RetryableError("store.unavailable", damaged, where=call.where)
    if call.key and "object name" in message:
        return ObjectError("object.bad_key", _said(answer), where=call.where)
    return None


def _denied(answer: GcsAnswer, call: Call) -> LarderError:
    return StoreError(
        "store.denied", _said(answer), where=call.store_url, hint=GCS_CREDENTIALS_HINT
    )


def _forbidden(answer: GcsAnswer, call: Call) -> LarderError:
    if answer.reason in _RATE:
        return _busy(answer, call)
    if answer.reason in _UNPAID or "billing" in answer.message.lower():
        hint = "enable billing in the project of the bucket, and in the one that pays"
        return StoreError("store.denied", _said(answer), where=call.store_url, hint=hint)
    if call.key:
        return ObjectError("object.unreadable", _said(answer), where=call.where)
    hint = "request permission to list and read the bucket"
    return StoreError("store.denied", _said(answer), where=call.store_url, hint=hint)


def _missing(answer: GcsAnswer, call: Call) -> LarderError:
    if call.key and not call.writing and _NO_BUCKET not in answer.message:
        return NotFoundError("object.missing", "no such object", where=call.where)
    hint = "create it, or fix the URL"
    return StoreError("store.missing", "the bucket does not exist", where=call.store_url, hint=hint)


def _conflict(answer: GcsAnswer, call: Call) -> LarderError:
    del answer
    if call.if_absent:
        return PreconditionError("object.exists", "it already exists", where=call.where)
    return PreconditionError("object.changed", "it changed since it was listed", where=call.where)


def _beyond(answer: GcsAnswer, call: Call) -> LarderError:
    del answer
    message = "the object ends before the range begins"
    return ObjectError("object.truncated", message, where=call.where)


def _other(answer: GcsAnswer, call: Call) -> LarderError:
    status = answer.status
    if status == 507:
        return StoreError("store.full", _said(answer), where=call.store_url)
    if status in _BUSY or (status >= 500 and status != 501):
        return _busy(answer, call)
    if call.key and not call.writing:
        return ObjectError("object.unreadable", _said(answer), where=call.where)
    return StoreError("store.refused", _said(answer), where=call.where)


def _busy(answer: GcsAnswer, call: Call) -> RetryableError:
    error = RetryableError("store.unavailable", _said(answer), where=call.where)
    error.after_seconds = answer.wait_seconds
    return error


def _said(answer: GcsAnswer) -> str:
    said = f"the store answers {answer.status} {answer.reason}".strip()
    detail = _TOKEN.sub("(token)", " ".join(answer.message.split()))[:300]
    return f"{said}: {detail}" if detail else said


def no_answer(error: BaseException, call: Call) -> LarderError:
    """The error if there was no answer: the connection failed, or was closed.

    Args:
        error: The client's error, of which only a known cause is shown.
        call: The request.
    """
    name, text = type(error).__name__, str(error)
    if "Certificate" in name or "SSL" in name or "certificate" in text:
        hint = "check the endpoint's certificate, or set SSL_CERT_FILE"
        return StoreError("store.refused", "TLS fails", where=call.store_url, hint=hint)
    return RetryableError("store.unavailable", _cause(error, name), where=call.where)


def _cause(error: BaseException, name: str) -> str:
    if "DNS" in name:
        return "the host name cannot be resolved"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if "Refused" in str(error) or getattr(error, "errno", None) == 111:
        return "connection refused"
    return "cannot connect" if "Connector" in name else "the connection broke"
