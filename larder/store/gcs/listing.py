"""Lists a GCS bucket, page by page.

https://cloud.google.com/storage/docs/json_api/v1/objects/list
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from larder.errors import StoreError
from larder.store.base import ObjectInfo
from larder.store.gcs.bucket import GcsBucket
from larder.store.gcs.objects import FIELDS, info_of_resource
from larder.store.s3_errors import Call

__all__ = ["list_pages"]

_PAGE_KEYS = 1000  # the most that GCS returns


def list_pages(bucket: GcsBucket, base: str, prefix: str, after: str) -> Iterator[list[ObjectInfo]]:
    """Yield pages of objects in order; no page is empty.

    Args:
        bucket: Sends the requests.
        base: What precedes every key in the bucket; the keys of the result begin after it.
        prefix: Only keys in the bucket with this prefix, which begins with ``base``.
        after: Only keys in the bucket after this one.

    Raises:
        LarderError: See `larder.store.gcs.errors`; ``store.refused``: the server does not list in
            order, or its answer cannot be parsed.
    """
    query: dict[str, str | None] = {
        "prefix": prefix,
        "startOffset": after or None,
        "maxResults": str(_PAGE_KEYS),
        "fields": f"nextPageToken,items({FIELDS})",
    }
    last = ""
    while True:
        answer = bucket.send(Call(bucket.store_url), "GET", bucket.path(), query).json()
        items = answer.get("items") or []
        _check(bucket, last, items)
        if items:
            last = items[-1]["name"]
        page = [
            info_of_resource(item, item["name"][len(base) :], bucket.store_url)
            for item in items
            if item["name"] > after  # startOffset includes the key itself
        ]
        if page:
            yield page
        query["pageToken"] = answer.get("nextPageToken")
        if not query["pageToken"]:
            return


def _check(bucket: GcsBucket, last: str, items: Any) -> None:
    try:
        for item in items:
            if item["name"] <= last:
                message = "the store does not list its keys in order"
                raise StoreError("store.refused", message, where=bucket.store_url)
            last = item["name"]
    except (LookupError, TypeError) as error:
        message = "the answer to a listing cannot be parsed"
        raise StoreError("store.refused", message, where=bucket.store_url) from error
