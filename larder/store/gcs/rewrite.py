"""Copies an object within GCS: a rewrite, which takes several requests if the bytes have to move.

https://cloud.google.com/storage/docs/json_api/v1/objects/rewrite
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from larder.errors import PreconditionError, RetryableError, StoreError
from larder.store.base import ObjectInfo, Place, Readable
from larder.store.gcs.bucket import GcsBucket
from larder.store.gcs.objects import FIELDS, info_of_resource
from larder.store.keys import object_url
from larder.store.s3_errors import Call

__all__ = ["rewrite"]

_REFUSED = (400, 403)


def rewrite(
    bucket: GcsBucket,
    source: Readable,
    place: Place,
    info: ObjectInfo,
    full_key: str,
    call: Call,
    again: Callable[[Callable[[], Any]], Any],
) -> ObjectInfo | None:
    """Copy one state of an object, with its content type and metadata.

    Args:
        bucket: The bucket of the copy, whose account has to be allowed to read the source.
        source: The store with the object.
        place: Where that is.
        info: The object as it was listed; described again if its generation is not known.
        full_key: The key of the copy in its bucket.
        call: For messages.
        again: Repeats a call while it fails for a time.

    Returns:
        The copy; None if the store refuses to copy, so that the bytes have to be streamed.

    Raises:
        LarderError: See `larder.store.gcs.errors`; ``object.changed``: the object has another etag.
    """
    generation = info.generation or _generation(source, info)
    path = f"{bucket.path(place.prefix + info.key, bucket=place.bucket)}/rewriteTo"
    path += bucket.path(full_key).removeprefix("/storage/v1")
    read = Call(source.url, info.key)
    token: str | None = None
    while True:
        query = {
            "ifSourceGenerationMatch": generation,
            "destinationKmsKeyName": bucket.access.kms_key,
            "rewriteToken": token,
            "fields": f"done,rewriteToken,resource({FIELDS})",
        }
        answer = again(partial(_step, bucket, read, path, query))
        if answer is None:
            return None
        if answer.get("done") is True:
            return info_of_resource(answer.get("resource") or {}, call.key, call.where)
        token = answer.get("rewriteToken")
        if not token:
            message = "the answer to a copy cannot be parsed"
            raise StoreError("store.refused", message, where=call.where)


def _step(
    bucket: GcsBucket, call: Call, path: str, query: dict[str, str | None]
) -> dict[str, Any] | None:
    """One request of the copy; None if it is refused."""
    response = bucket.send(call, "POST", path, query, accept=_REFUSED)
    if response.status not in _REFUSED:
        return response.json()
    error = response.error()
    if isinstance(error, RetryableError):
        raise error
    return None


def _generation(source: Readable, info: ObjectInfo) -> str | None:
    """The generation of the object as it was listed.

    Raises:
        PreconditionError: ``object.changed``: the object has another etag now.
    """
    now = source.head(info.key)
    if now.etag != info.etag:
        where = object_url(source.url, info.key)
        raise PreconditionError("object.changed", "it changed since it was listed", where=where)
    return now.generation
