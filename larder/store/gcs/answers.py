"""Meanings of GCS's answers: descriptions of objects, or errors.

Errors, before the table of `larder.store.calls`::

    answer                                          error           code
    404, the bucket does not exist, or when writing StoreError      store.missing
    401                                             StoreError      store.denied
    403 rateLimitExceeded, userRateLimitExceeded    RetryableError  store.unavailable
    403 about the billing account, or a disabled    StoreError      store.denied
    service
    400 without the paying project                  StoreError      store.denied
    400 about a digest, when writing                RetryableError  store.unavailable
    400 about the name of the object                ObjectError     object.bad_key

Codes: https://cloud.google.com/storage/docs/json_api/v1/status-codes. Google's message names the
account and the missing permission.

The JSON resource of an object, or the headers of its content, describe it. The etag is the MD5 of
the content, which GCS keeps for every object not composed of others; else ``crc32c:`` and the
CRC32C. So the etag changes with the content alone: not with the metadata, and not with the
generation, which changes when the same bytes are written again.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

from larder.errors import LarderError, ObjectError, RetryableError, StoreError
from larder.store.base import KEPT_HEADERS, ObjectInfo
from larder.store.buckets import size_of, storage_class, time_of
from larder.store.calls import Call, Refusal, RefusedKeysError, no_bucket, undescribed

CREDENTIALS_HINT = (
    "run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS"
)
_NO_BUCKET = "bucket does not exist"
_RATE = {"rateLimitExceeded", "userRateLimitExceeded"}
_UNPAID = {"accountDisabled", "billingNotEnabled", "UserProjectAccountProblem", "SERVICE_DISABLED"}
_XML_MESSAGE = re.compile(r"<(?:Message|Details)>([^<]*)</")


def gcs_error(status: int, body: bytes, retry_after: str, call: Call) -> LarderError:
    refusal = Refusal(status, *_parsed(body), retry_after)
    if status == 403 and refusal.code in _RATE:
        return refusal.busy(call)
    if status == 404 and (call.writing or _says(refusal, _NO_BUCKET)):
        return no_bucket(call)
    return _of_account(refusal, call) or _of_object(refusal, call) or refusal.error(call)


def _says(refusal: Refusal, *texts: str) -> bool:
    return any(text in refusal.message.lower() for text in texts)


def _parsed(body: bytes) -> tuple[str, str]:
    """Parse reason and message from an error's body: usually JSON, else text, XML or nothing."""
    text = body.decode("utf-8", "replace")
    try:
        error = json.loads(text)["error"]
    except (ValueError, LookupError, TypeError, RecursionError):
        message = _XML_MESSAGE.search(text)
        return "", message[1] if message else "" if text.lstrip().startswith("<") else text
    if not isinstance(error, dict):
        return "", str(error)
    details = error.get("errors")
    first = details[0] if isinstance(details, list) and details else {}
    reason = first.get("reason") if isinstance(first, dict) else ""
    return str(reason or ""), str(error.get("message") or "")


def _of_account(refusal: Refusal, call: Call) -> StoreError | None:
    status, message = refusal.status, str(refusal)
    if status == 401:
        hint = CREDENTIALS_HINT
        return RefusedKeysError("store.denied", message, where=call.store_url, hint=hint)
    if status == 400 and _says(refusal, "requester pays", "user project"):
        message = "the bucket's requester pays, and no project was named"
        hint = "set requester_pays: true, and project: to the project that pays"
    elif status == 403 and (refusal.code in _UNPAID or _says(refusal, "billing")):
        hint = "enable billing in the project of the bucket, and in the one that pays"
    else:
        return None
    return StoreError("store.denied", message, where=call.store_url, hint=hint)


def _of_object(refusal: Refusal, call: Call) -> LarderError | None:
    if refusal.status == 400 and call.writing and _says(refusal, "crc32c", "md5"):
        message = "the store has received other bytes than were sent"
        return RetryableError("store.unavailable", message, where=call.where)
    if refusal.status == 400 and call.key and _says(refusal, "object name"):
        return ObjectError("object.bad_key", str(refusal), where=call.where)
    return None


_FIELDS_OF_HEADERS = ("cacheControl", "contentDisposition", "contentEncoding", "contentLanguage")
_HEADERS = dict(zip(KEPT_HEADERS, _FIELDS_OF_HEADERS, strict=True))

FIELDS = "name,size,md5Hash,crc32c,generation,updated,storageClass,contentType,metadata,"
FIELDS += ",".join(_FIELDS_OF_HEADERS)
"""The requested fields of a resource."""

_DEFAULT_TYPE = "application/octet-stream"
_META = "x-goog-meta-"


def info_of_resource(resource: Mapping[str, Any], key: str, where: str) -> ObjectInfo:
    try:
        crc32c, md5 = resource.get("crc32c"), resource.get("md5Hash")
        generation = resource.get("generation")
        checksum = f"crc32c:{_hex(crc32c)}" if crc32c else None
        return ObjectInfo(
            key,
            size_of(resource["size"]),
            _hex(md5) if md5 else checksum or f"generation:{generation}",
            time_of(resource.get("updated")),
            storage_class(resource.get("storageClass") or None),
            checksum,
            str(generation) if generation else None,
            resource.get("contentType"),
            {name.lower(): value for name, value in (resource.get("metadata") or {}).items()},
            {name: resource[field] for name, field in _HEADERS.items() if resource.get(field)},
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        said = resource if isinstance(resource, dict) else {}
        names = ("size", "updated", "crc32c", "md5Hash")
        raise undescribed(where, {name: said.get(name) for name in names}) from error


def info_of_headers(headers: Mapping[str, str], key: str) -> ObjectInfo | None:
    """Describe an object from the headers of its content, or of a part of it.

    A download through the JSON API may lack the metadata. Return None if other headers are missing.
    """
    parts = [part.strip().partition("=") for part in headers.get("x-goog-hash", "").split(",")]
    hashes = {algorithm: encoded for algorithm, _, encoded in parts}
    whole = headers.get("content-range", "").rpartition("/")[2]
    stored = headers.get("x-goog-stored-content-length")
    metadata = {
        name.removeprefix(_META): text for name, text in headers.items() if name.startswith(_META)
    }
    try:
        resource = {
            "size": whole or stored or headers["content-length"],
            "md5Hash": hashes.get("md5"),
            "crc32c": hashes["crc32c"],
            "generation": headers.get("x-goog-generation"),
            "updated": headers["last-modified"],
            "storageClass": headers.get("x-goog-storage-class"),
            "contentType": headers.get("content-type"),
        }
        info = info_of_resource(resource, key, "")
    except (LookupError, ValueError, StoreError):
        return None
    return info._replace(metadata=metadata or None, headers=None)


def resource_of(
    full_key: str, like: ObjectInfo | None, crc32c: int | None = None, md5: str | None = None
) -> dict[str, Any]:
    """Return the resource for writing an object, with the digests of its content.

    The object gets the content type, metadata and headers of ``like``.
    """
    resource: dict[str, Any] = {"name": full_key, "contentType": _DEFAULT_TYPE}
    kind = (like.content_type or "").strip() if like is not None else ""
    if kind and kind.isascii() and kind.isprintable():  # the content's part has it as a header
        resource["contentType"] = kind
    if like is not None and like.metadata:
        resource["metadata"] = dict(like.metadata)
    if like is not None and like.headers:
        resource |= {_HEADERS[name]: text for name, text in like.headers.items()}
    if crc32c is not None:
        resource["crc32c"] = base64.b64encode(crc32c.to_bytes(4, "big")).decode()
    if md5 is not None:
        resource["md5Hash"] = base64.b64encode(bytes.fromhex(md5)).decode()
    return resource


def _hex(encoded: str) -> str:
    return base64.b64decode(encoded, validate=True).hex()
