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
from larder.store.calls import Call

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
    """An answer that is an error: its status, and Google's word and sentence for it."""

    status: int
    reason: str
    message: str

    def __str__(self) -> str:
        """Both, without tokens."""
        said = f"the store answers {self.status} {self.reason}".strip()
        detail = _TOKEN.sub("(token)", " ".join(self.message.split()))[:300]
        return f"{said}: {detail}" if detail else said

    def says(self, *texts: str) -> bool:
        """Whether Google's sentence contains one of these."""
        return any(text in self.message.lower() for text in texts)


def gcs_error(status: int, body: bytes, retry_after: str, call: Call) -> LarderError:
    """The error that an answer means; the table is at the top of this module."""
    answer = _Answer(status, *_parsed(body))
    failing = status >= 500 and status not in (501, 507)
    if failing or status in _BUSY or (status == 403 and answer.reason in _RATE):
        error = RetryableError("store.unavailable", str(answer), where=call.where)
        if retry_after.isdecimal():
            error.after_seconds = min(float(retry_after), _MOST_WAIT_SECONDS)
        return error
    return _of_account(answer, call) or _of_object(answer, call) or _of_store(answer, call)


def _parsed(body: bytes) -> tuple[str, str]:
    """Reason and message in the body of an error: JSON usually, sometimes text or XML, or none."""
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


def _of_account(answer: _Answer, call: Call) -> LarderError | None:
    message = str(answer)
    if answer.status == 401:
        hint = CREDENTIALS_HINT
    elif answer.status == 400 and answer.says("requester pays", "user project"):
        message = "the bucket's requester pays, and no project was named"
        hint = "set requester_pays: true, and project: to the project that pays"
    elif answer.status == 403 and (answer.reason in _UNPAID or answer.says("billing")):
        hint = "enable billing in the project of the bucket, and in the one that pays"
    elif answer.status == 403 and not call.key:
        hint = "request permission to list and read the bucket"
    else:
        return None
    return StoreError("store.denied", message, where=call.store_url, hint=hint)


def _of_object(answer: _Answer, call: Call) -> LarderError | None:
    status, message = answer.status, str(answer)
    reading = bool(call.key) and not call.writing
    kind: type[LarderError] = ObjectError
    if status == 404 and reading and not answer.says(_NO_BUCKET):
        kind, code, message = NotFoundError, "object.missing", "no such object"
    elif status == 412 and call.if_absent:
        kind, code, message = PreconditionError, "object.exists", "it already exists"
    elif status == 412:
        kind, code, message = PreconditionError, "object.changed", "it changed since it was listed"
    elif status == 416:
        code, message = "object.truncated", "the object ends before the range begins"
    elif status == 400 and call.writing and answer.says("crc32c", "md5"):
        kind, code = RetryableError, "store.unavailable"
        message = "the store has received other bytes than were sent"
    elif status == 400 and call.key and answer.says("object name"):
        code = "object.bad_key"
    elif (status == 403 and call.key) or (reading and status not in (404, 507)):
        code = "object.unreadable"
    else:
        return None
    return kind(code, message, where=call.where)


def _of_store(answer: _Answer, call: Call) -> LarderError:
    if answer.status == 404:
        message, hint = "the bucket does not exist", "create it, or fix the URL"
        return StoreError("store.missing", message, where=call.store_url, hint=hint)
    if answer.status == 507:
        return StoreError("store.full", str(answer), where=call.store_url)
    return StoreError("store.refused", str(answer), where=call.where)
