"""Answers of S3, and the headers that describe objects.

Errors, before the table of `larder.store.calls`::

    answer                                              error
    NoSuchBucket                                        StoreError         store.missing
    RequestTimeTooSkewed                                StoreError         store.denied
    301, 307, AuthorizationHeaderMalformed + region     StoreError         store.region
    3xx of another server, to an address                StoreError         store.refused
    SignatureDoesNotMatch, InvalidAccessKeyId, ...      StoreError         store.denied
    409 of a condition, SlowDown, ...                   RetryableError     store.unavailable
    InvalidObjectState: it is archived                  ObjectError        object.unreadable
    a name that the server refuses                      ObjectError        object.bad_key
    BadDigest, ...: the server compared the bytes       ObjectError        object.mismatch

Codes: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from email.errors import MessageError
from email.header import decode_header, make_header
from functools import lru_cache
from html import unescape
from urllib.parse import SplitResult, urlsplit

from larder.bounds import ERROR_BYTES, XML_BYTES
from larder.errors import LarderError, ObjectError, StoreError
from larder.manifest.digest import format_crc32c
from larder.store.base import KEPT_HEADERS, BucketPrefix, ObjectInfo
from larder.store.buckets import size_of, storage_class, time_of
from larder.store.calls import (
    Call,
    Refusal,
    RefusedKeysError,
    connection_errors,
    no_bucket,
    undescribed,
)
from larder.store.etags import plain_etag
from larder.store.http import Answer
from larder.store.s3.sign import encoded_path
from larder.units import format_seconds

CREDENTIALS_HINT = (
    "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the profile, or the role of this machine"
)
CHECKSUM_HINT = (
    "if the server does not take x-amz-checksum headers, set "
    "AWS_REQUEST_CHECKSUM_CALCULATION=when_required"
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
    "InvalidTokenId",
    "NotSignedUp",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
}
_BAD_NAME = {"InvalidObjectName", "InvalidURI", "KeyTooLongError", "XMinioInvalidObjectName"}
_BUSY = {"ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "SlowDown"}
_DAMAGED = {"BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch"}
_ELSEWHERE = {"AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect"}
_REDIRECTS = {301, 302, 303, 307, 308}


def error_of(answer: Answer, call: Call) -> LarderError:
    with connection_errors(call):
        body = answer.beginning(ERROR_BYTES).decode("utf-8", "replace")
    return _error(answer.status, answer.headers, body, call)


def document(answer: Answer, call: Call) -> str:
    """Return the XML of an answer, or raise its error, which S3 may send with status 200."""
    body = content(answer, call).decode("utf-8", "replace")
    if "<Error>" in body:
        raise _error(500, answer.headers, body, call)
    return body


def content(answer: Answer, call: Call) -> bytes:
    with connection_errors(call):
        return answer.read(XML_BYTES)


def element(body: str, name: str) -> str:
    """Return the text of the first element of this name; empty if missing."""
    text, closed, _ = body.partition(f"<{name}>")[2].partition(f"</{name}>")
    return unescape(text.strip()) if closed else ""


def _error(status: int, headers: Mapping[str, str], body: str, call: Call) -> LarderError:
    """Return the error of an error document, which some servers send in part or omit."""
    code = element(body, "Code")
    refusal = Refusal(status, code, element(body, "Message"), headers.get("retry-after", ""))
    region = element(body, "Region") or headers.get("x-amz-bucket-region", "")
    if code == "NoSuchBucket":
        return no_bucket(call)
    if status in _REDIRECTS or (code in _ELSEWHERE and region):
        to = urlsplit("" if region or code in _ELSEWHERE else headers.get("location", ""))
        return _redirected(to, call) if to.netloc else elsewhere(region, call)
    if code == "RequestTimeTooSkewed":
        return _clock_differs(element(body, "ServerTime"), headers.get("date", ""), call)
    if code in _BAD_CREDENTIALS:
        message = f"the credentials are refused ({code})"
        hint = CREDENTIALS_HINT
        return RefusedKeysError("store.denied", message, where=call.store_url, hint=hint)
    if code in _BUSY:
        return refusal.busy(call)
    return _of_key(refusal, call) or refusal.error(call)


def _clock_differs(server_time: str, date: str, call: Call) -> StoreError:
    """Return the error of a wrong clock: a signature is valid for 15 minutes."""
    message = "the clock of this machine differs from the server's"
    with suppress(ValueError):
        server_us = time_us(server_time or date or "no time")
        ahead_seconds = time.time() - server_us / 1e6
        side = "ahead of" if ahead_seconds > 0 else "behind"
        message = (
            f"the clock of this machine is {format_seconds(abs(ahead_seconds))} {side} the server's"
        )
    hint = "set the clock of this machine"
    return StoreError("store.denied", message, where=call.store_url, hint=hint)


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
    """Return the error of a bucket in another region, empty if unknown."""
    message = f"the bucket is in {region}" if region else REGION_UNTOLD
    hint = f"set region: {region}" if region else "set the bucket's region"
    return StoreError("store.region", message, where=call.store_url, hint=hint)


def _redirected(to: SplitResult, call: Call) -> StoreError:
    """Return the error of a redirect by another server, such as a proxy or a login page."""
    message = f"the server redirects to {to.scheme}://{to.netloc.rpartition('@')[2]}"
    hint = "if the objects are there, give that address as the endpoint; else check the proxies"
    return StoreError("store.refused", message, where=call.store_url, hint=hint)


_META = "x-amz-meta-"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a token of RFC 9110


def described(like: ObjectInfo) -> dict[str, str]:
    """Return a new object's headers: content type, metadata and headers of ``like``."""
    headers = {name: _header_text(text) for name, text in (like.headers or {}).items()}
    if like.content_type:
        headers["content-type"] = _header_text(like.content_type)
    for name, text in (like.metadata or {}).items():
        if _NAME.fullmatch(name):  # other stores allow names that no header can have
            headers[f"{_META}{name.lower()}"] = _header_text(text)
    return headers


def copy_source(source: BucketPrefix, info: ObjectInfo) -> dict[str, str]:
    """Return the headers of a copy: its source, its condition, and that the reader pays."""
    path = f"/{source.bucket}/{source.prefix}{info.key}"
    headers = {"x-amz-copy-source": encoded_path(path)}
    if info.etag:  # a report may lack etags
        headers["x-amz-copy-source-if-match"] = f'"{info.etag}"'
    if source.payer is not None:
        headers["x-amz-request-payer"] = "requester"
    return headers


def crc32c_text(crc32c: int) -> str:
    return base64.b64encode(crc32c.to_bytes(4, "big")).decode()


def etag_of(headers: Mapping[str, str]) -> str:
    return plain_etag(headers.get("etag", ""))


def compared_checksum(headers: Mapping[str, str], crc32c: int) -> str | None:
    """Return the sent checksum if the answer repeats it: then the server has compared it."""
    repeated = headers.get("x-amz-checksum-crc32c")
    return format_crc32c(crc32c) if repeated == crc32c_text(crc32c) else None


def object_info(call: Call, headers: Mapping[str, str]) -> ObjectInfo:
    total = headers.get("content-range", "").rpartition("/")[2]
    size = total if total.isdecimal() else headers.get("content-length", "0")
    modified = headers.get("last-modified")
    try:
        size_bytes = size_of(size.rpartition(",")[2])  # the same length may be given twice
        modified_us = time_us(modified)
        checksum = _checksum(headers)
    except ValueError as error:
        fields = {"Content-Length": size, "Last-Modified": modified}
        fields["x-amz-checksum-crc32c"] = headers.get("x-amz-checksum-crc32c")
        raise undescribed(call.where, fields) from error
    return ObjectInfo(
        call.key,
        size_bytes,
        etag_of(headers),
        modified_us,
        storage_class=storage_class(headers.get("x-amz-storage-class")),
        checksum=checksum,
        generation=headers.get("x-amz-version-id"),
        content_type=headers.get("content-type"),
        metadata={
            name[len(_META) :]: _plain_text(text)
            for name, text in headers.items()
            if name.startswith(_META)
        },
        headers={
            name: _plain_text(headers[name])
            for name in KEPT_HEADERS
            if name in headers and headers[name] != "aws-chunked"  # describes the transfer
        },
    )


time_us = lru_cache(4096)(time_of)  # many objects have one date


def _checksum(headers: Mapping[str, str]) -> str | None:
    """Return the CRC32C of the whole content, if kept; ignore one of parts, with ``-N``."""
    encoded = headers.get("x-amz-checksum-crc32c", "")
    if len(encoded) != 8 or headers.get("x-amz-checksum-type", "FULL_OBJECT") != "FULL_OBJECT":
        return None
    return f"crc32c:{base64.b64decode(encoded).hex()}"


def _header_text(text: str) -> str:
    """Encode a header's value: S3 encodes non-ASCII text as RFC 2047 does."""
    text = " ".join(text.split())
    if text.isascii() and text.isprintable():
        return text
    return f"=?UTF-8?B?{base64.b64encode(text.encode()).decode()}?="


def _plain_text(text: str) -> str:
    if not text.startswith("=?"):
        return text
    try:
        return str(make_header(decode_header(text)))
    except (LookupError, ValueError, MessageError):
        return text
