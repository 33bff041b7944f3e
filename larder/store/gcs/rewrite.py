"""Copies an object within GCS: a rewrite, which takes several requests if the bytes have to move.

https://cloud.google.com/storage/docs/json_api/v1/objects/rewrite
"""

from __future__ import annotations

from functools import partial
from typing import Any

from larder.errors import RetryableError, StoreError
from larder.store.base import ObjectInfo, Place, Readable
from larder.store.calls import Call, conflict
from larder.store.gcs.bucket import GcsBucket, GcsObject, Request
from larder.store.gcs.objects import FIELDS, info_of_resource

_REFUSED = (400, 403)


def rewrite(
    source: Readable, place: Place, info: ObjectInfo, target: GcsObject
) -> ObjectInfo | None:
    """Copy one state of an object, as it was listed, with its content type and metadata.

    The target's account has to be allowed to read the source, which is at a place. None if the
    server refuses to copy, so that the bytes have to be streamed.

    Raises:
        LarderError: See `larder.store.gcs.errors`; ``object.changed``: the object has another etag.
    """
    bucket, read = target.bucket, Call(source.url, info.key)
    path = f"{bucket.path(place.prefix + info.key, bucket=place.bucket)}/rewriteTo"
    path += target.path.removeprefix("/storage/v1")
    query = {
        "ifSourceGenerationMatch": info.generation or _generation(source, info, read),
        "destinationKmsKeyName": bucket.access.kms_key,
        "fields": f"done,rewriteToken,resource({FIELDS})",
    }
    while True:
        request = Request("POST", path, query, accept=_REFUSED)
        answer = bucket.again(partial(_step, bucket, request, read))
        if answer is None:
            return None
        if answer.get("done") is True:
            return info_of_resource(
                answer.get("resource") or {}, target.call.key, target.call.where
            )
        query["rewriteToken"] = answer.get("rewriteToken")
        if not query["rewriteToken"]:
            message = "the answer to a copy cannot be parsed"
            raise StoreError("store.refused", message, where=target.call.where)


def _step(bucket: GcsBucket, request: Request, call: Call) -> dict[str, Any] | None:
    """One request of the copy; None if it is refused."""
    response = bucket.send(request, call)
    if response.status not in _REFUSED:
        return response.json()
    error = response.error()
    if isinstance(error, RetryableError):
        raise error
    return None


def _generation(source: Readable, info: ObjectInfo, call: Call) -> str | None:
    """The generation of the object, if it has the etag with which it was listed."""
    now = source.head(info.key)
    if now.etag != info.etag:
        raise conflict(call)
    return now.generation
