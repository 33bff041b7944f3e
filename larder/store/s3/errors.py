"""Answers of S3: what is in them, or the errors that they are.

Before the table of `larder.store.calls`::

    answer                                              error
    NoSuchBucket                                        StoreError         store.missing
    301, 307, AuthorizationHeaderMalformed + region     StoreError         store.region
    SignatureDoesNotMatch, InvalidAccessKeyId, ...      StoreError         store.denied
    409 of a condition, SlowDown, ...                   RetryableError     store.unavailable
    InvalidObjectState: it is archived                  ObjectError        object.unreadable
    a name that the server refuses                      ObjectError        object.bad_key
    BadDigest, ...: the server compared the bytes       ObjectError        object.mismatch

Codes: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape

from larder.errors import LarderError, ObjectError, StoreError
from larder.store.calls import Call, Refusal, connection_errors, no_bucket
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
_ELSEWHERE = {"AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect"}
_REDIRECTS = {301, 302, 307, 308}


def error_of(answer: Answer, call: Call) -> LarderError:
    """The error that an answer is."""
    body = content(answer, call).decode("utf-8", "replace")
    return _error(answer.status, answer.headers, body, call)


def document(answer: Answer, call: Call) -> str:
    """The XML of an answer, or the error that it is: S3 answers 200 before it knows the result."""
    body = content(answer, call).decode("utf-8", "replace")
    if "<Error>" in body:
        raise _error(500, {}, body, call)
    return body


def content(answer: Answer, call: Call) -> bytes:
    """The whole body of an answer."""
    with connection_errors(call):
        return answer.read()


def element(body: str, name: str) -> str:
    """The text of the first element of this name; empty if there is none."""
    match = re.search(f"<{name}>(.*?)</{name}>", body, re.DOTALL)
    return unescape(match[1].strip()) if match else ""


def _error(status: int, headers: Mapping[str, str], body: str, call: Call) -> LarderError:
    """What an error document means; some servers send parts of one, or none."""
    code = element(body, "Code")
    refusal = Refusal(status, code, element(body, "Message"), headers.get("retry-after", ""))
    region = element(body, "Region") or headers.get("x-amz-bucket-region", "")
    if code == "NoSuchBucket":
        return no_bucket(call)
    if status in _REDIRECTS or (code in _ELSEWHERE and region):
        return elsewhere(region, call)
    if code in _BAD_CREDENTIALS:
        message = f"the credentials are refused ({code})"
        return StoreError("store.denied", message, where=call.store_url, hint=CREDENTIALS_HINT)
    if code in _BUSY:
        return refusal.busy(call)
    return _of_key(refusal, call) or refusal.error(call)


def _of_key(refusal: Refusal, call: Call) -> ObjectError | None:
    code, hint = refusal.code, ""
    if code == "InvalidObjectState":
        kind, message = "object.unreadable", "the object is archived"
        hint = "restore it from the archive first"
    elif code in _BAD_NAME or (code == "InvalidArgument" and "name" in refusal.message):
        kind, message = "object.bad_key", f"the server refuses the key ({code})"
    elif code in _DAMAGED:
        kind, message = "object.mismatch", f"the bytes were damaged on their way ({code})"
        hint = "the network damages data; run again"
    else:
        return None
    return ObjectError(kind, message, where=call.where, hint=hint) if call.key else None


def elsewhere(region: str, call: Call) -> StoreError:
    """The bucket is in another region, which may be unknown."""
    message = f"the bucket is in {region}" if region else REGION_UNTOLD
    hint = f"set region: {region}" if region else "set the bucket's region"
    return StoreError("store.region", message, where=call.store_url, hint=hint)
