"""Answers of S3: what is in them, or the errors that they are.

::

    answer                                              error
    404 NoSuchBucket; 404 of a request without a key    StoreError         store.missing
    404                                                 NotFoundError      object.missing
    412                                                 PreconditionError  object.exists / .changed
    416                                                 ObjectError        object.truncated
    301, 307, AuthorizationHeaderMalformed + region     StoreError         store.region
    SignatureDoesNotMatch, InvalidAccessKeyId, ...      StoreError         store.denied
    403 of a request without a key                     StoreError         store.denied
    403                                                 ObjectError        object.unreadable
    a name that the server refuses                      ObjectError        object.bad_key
    BadDigest, ...: the server compared the bytes       ObjectError        object.mismatch
    408, 409 of a condition, 429, 5xx, SlowDown         RetryableError     store.unavailable
    507                                                 StoreError         store.full
    any other, when reading an object                   ObjectError        object.unreadable
    any other                                           StoreError         store.refused

Codes: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html. Only the code and the
message of a response are shown: the rest of its body may contain signed strings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape

from larder.errors import (
    LarderError,
    NotFoundError,
    ObjectError,
    PreconditionError,
    RetryableError,
    StoreError,
)
from larder.store.calls import Call, connection_errors
from larder.store.http import Answer

CREDENTIALS_HINT = (
    "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the profile, or the role of this machine"
)
REGION_UNTOLD = "the bucket is in another region"
_BAD_CREDENTIALS = {
    "AccessKeyDisabled",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSecurity",
    "InvalidToken",
    "NotSignedUp",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
}
_BAD_NAME = {"InvalidObjectName", "InvalidURI", "KeyTooLongError", "XMinioInvalidObjectName"}
_BUSY = {"ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "SlowDown"}
_DAMAGED = {"BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch"}
_BUSY_STATUS = {408, 429}
_ELSEWHERE = {"AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect"}
_REDIRECTS = {301, 302, 307, 308}

_ACCESS_KEY = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}")
_MOST_WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error response: HTTP status, S3's code and message, and the right region, if given."""

    status: int
    code: str = ""
    message: str = ""
    region: str = ""


def error_of(answer: Answer, call: Call) -> LarderError:
    """The error that an answer is."""
    body = content(answer, call).decode("utf-8", "replace")
    region = answer.headers.get("x-amz-bucket-region", "")
    error = s3_error(_refusal(answer.status, body, region), call)
    wait = answer.headers.get("retry-after", "")
    if isinstance(error, RetryableError) and wait.isdigit():
        error.after_seconds = min(float(wait), _MOST_WAIT_SECONDS)
    return error


def document(answer: Answer, call: Call) -> str:
    """The XML of an answer. S3 answers 200 before it knows whether a long operation succeeds.

    Raises:
        LarderError: The document is an error.
    """
    body = content(answer, call).decode("utf-8", "replace")
    if "<Error>" in body:
        raise s3_error(_refusal(500, body), call)
    return body


def content(answer: Answer, call: Call) -> bytes:
    """The whole body of an answer."""
    with connection_errors(call):
        return answer.read()


def element(body: str, name: str) -> str:
    """The text of the first element of this name; empty if there is none."""
    match = re.search(f"<{name}>(.*?)</{name}>", body, re.DOTALL)
    return unescape(match[1].strip()) if match else ""


def _refusal(status: int, body: str, region: str = "") -> Refusal:
    """Parse S3's error document, leniently: some servers send parts of one, or none."""
    region = element(body, "Region") or region
    return Refusal(status, element(body, "Code"), element(body, "Message"), region)


def s3_error(answer: Refusal, call: Call) -> LarderError:
    """The error that an answer means; the table is at the top of this module."""
    return _by_code(answer, call) or _by_status(answer, call) or _other(answer, call)


def _by_code(answer: Refusal, call: Call) -> LarderError | None:
    code = answer.code
    if code == "NoSuchBucket":
        return _no_bucket(call)
    if answer.status in _REDIRECTS or (code in _ELSEWHERE and answer.region):
        return _elsewhere(answer, call)
    if code in _BAD_CREDENTIALS:
        message = f"the credentials are refused ({code})"
        return StoreError("store.denied", message, where=call.store_url, hint=CREDENTIALS_HINT)
    if code in _BUSY:
        return RetryableError("store.unavailable", _said(answer), where=call.where)
    return _by_code_of_key(answer, call) if call.key else None


def _by_code_of_key(answer: Refusal, call: Call) -> LarderError | None:
    code = answer.code
    if code in _BAD_NAME or (code == "InvalidArgument" and "name" in answer.message):
        return ObjectError(
            "object.bad_key", f"the server refuses the key ({code})", where=call.where
        )
    if code in _DAMAGED:
        message = f"the bytes were damaged on their way ({code})"
        hint = "the network damages data; run again"
        return ObjectError("object.mismatch", message, where=call.where, hint=hint)
    return None


def _by_status(answer: Refusal, call: Call) -> LarderError | None:
    status = answer.status
    if status == 404:
        missing = NotFoundError("object.missing", "no such object", where=call.where)
        return missing if call.key else _no_bucket(call)
    if status == 412:
        return _conflict(call)
    if status == 416:
        return ObjectError(
            "object.truncated", "the object ends before the range begins", where=call.where
        )
    return _denied(answer, call) if status == 403 else None


def _other(answer: Refusal, call: Call) -> LarderError:
    status = answer.status
    if status == 507:
        return StoreError("store.full", _said(answer), where=call.store_url)
    if status in _BUSY_STATUS or (status >= 500 and status != 501):
        return RetryableError("store.unavailable", _said(answer), where=call.where)
    if call.key and not call.writing:
        return ObjectError("object.unreadable", _said(answer), where=call.where)
    return StoreError("store.refused", _said(answer), where=call.where)


def _no_bucket(call: Call) -> StoreError:
    hint = "create it, or fix the URL"
    return StoreError("store.missing", "the bucket does not exist", where=call.store_url, hint=hint)


def _conflict(call: Call) -> PreconditionError:
    if call.if_absent:
        return PreconditionError("object.exists", "it already exists", where=call.where)
    return PreconditionError("object.changed", "it changed since it was listed", where=call.where)


def _elsewhere(answer: Refusal, call: Call) -> StoreError:
    region = answer.region
    message = f"the bucket is in {region}" if region else REGION_UNTOLD
    hint = f"set region: {region}" if region else "set the bucket's region"
    return StoreError("store.region", message, where=call.store_url, hint=hint)


def _denied(answer: Refusal, call: Call) -> LarderError:
    if answer.code == "InvalidObjectState":
        hint = "restore it from the archive first"
        return ObjectError(
            "object.unreadable", "the object is archived", where=call.where, hint=hint
        )
    if call.key:
        return ObjectError("object.unreadable", _said(answer), where=call.where)
    hint = "request permission to list and read the bucket"
    return StoreError("store.denied", _said(answer), where=call.store_url, hint=hint)


def _said(answer: Refusal) -> str:
    said = f"the store answers {answer.status} {answer.code}".strip()
    detail = _ACCESS_KEY.sub("(key)", " ".join(answer.message.split()))[:200]
    return f"{said}: {detail}" if detail else said
