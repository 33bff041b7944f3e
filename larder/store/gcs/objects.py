"""What GCS says about an object, in its JSON resource or in the headers of its content.

The etag is the MD5 of the content, which GCS keeps for every object that was not composed of
others; then ``crc32c:`` and its CRC32C. So it changes with the content alone: not with the
generation, which is another after each write of the same bytes, and not with the metadata.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any

from larder.errors import StoreError
from larder.store.base import ObjectInfo
from larder.store.buckets import storage_class, time_of

FIELDS = "name,size,md5Hash,crc32c,generation,updated,storageClass,contentType,metadata"
"""The fields of a resource that are asked for."""

_DEFAULT_TYPE = "application/octet-stream"
_META = "x-goog-meta-"


def info_of_resource(resource: Mapping[str, Any], key: str, where: str) -> ObjectInfo:
    """Describe an object from its resource.

    https://cloud.google.com/storage/docs/json_api/v1/objects#resource
    """
    try:
        crc32c, md5 = resource.get("crc32c"), resource.get("md5Hash")
        generation = resource.get("generation")
        checksum = f"crc32c:{_hex(crc32c)}" if crc32c else None
        return ObjectInfo(
            key,
            int(resource["size"]),
            _hex(md5) if md5 else checksum or f"generation:{generation}",
            time_of(resource["updated"]),
            storage_class(resource.get("storageClass") or None),
            checksum,
            str(generation) if generation else None,
            resource.get("contentType"),
            {name.lower(): value for name, value in (resource.get("metadata") or {}).items()},
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        message = "the answer does not describe an object"
        raise StoreError("store.refused", message, where=where) from error


def info_of_headers(headers: Mapping[str, str], key: str) -> ObjectInfo | None:
    """Describe an object from the headers of its content, or of a part of it.

    The metadata is unknown unless there are headers with it, which a download through the JSON API
    may not have. None if the headers do not say enough.
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
            "updated": parsedate_to_datetime(headers["last-modified"]).isoformat(),
            "storageClass": headers.get("x-goog-storage-class"),
            "contentType": headers.get("content-type"),
        }
        info = info_of_resource(resource, key, "")
    except (LookupError, ValueError, StoreError):
        return None
    return replace(info, metadata=metadata or None)


def resource_of(
    full_key: str, like: ObjectInfo | None, crc32c: int | None = None, md5: str | None = None
) -> dict[str, Any]:
    """The resource of an object that is about to be written, with the digests of its content.

    It gets the content type and metadata of another object.
    """
    resource: dict[str, Any] = {"name": full_key, "contentType": _DEFAULT_TYPE}
    kind = (like.content_type or "").strip() if like is not None else ""
    if kind and kind.isascii() and kind.isprintable():  # it is also that of the content's part
        resource["contentType"] = kind
    if like is not None and like.metadata:
        resource["metadata"] = dict(like.metadata)
    if crc32c is not None:
        resource["crc32c"] = base64.b64encode(crc32c.to_bytes(4, "big")).decode()
    if md5 is not None:
        resource["md5Hash"] = base64.b64encode(bytes.fromhex(md5)).decode()
    return resource


def _hex(encoded: str) -> str:
    return base64.b64decode(encoded, validate=True).hex()
