"""Lists and aborts multipart uploads that nobody will complete.

The parts of an upload are invisible and paid for until it is completed or aborted. Nothing but the
prefix and the time says whose an upload is: both have to be chosen so that it is ours.

Protocol: https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListMultipartUploads.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from xml.etree import ElementTree

from larder.errors import NotFoundError, StoreError
from larder.store.buckets import time_of
from larder.store.calls import Call
from larder.store.retry import RetryPolicy, repeated
from larder.store.s3.bucket import S3Bucket
from larder.store.s3.listing import Page, decoded, parsed_page, text_of

_POLICY = RetryPolicy()
_MARKERS = {"key-marker": "NextKeyMarker", "upload-id-marker": "NextUploadIdMarker"}


@dataclass(frozen=True, slots=True)
class PendingUpload:
    """A multipart upload, with its key in the bucket, and the time by the server when it began."""

    key: str
    upload_id: str
    begun_us: int


def list_uploads(bucket: S3Bucket, *, prefix: str) -> list[PendingUpload]:
    """The uploads of a bucket that were begun but neither completed nor aborted.

    The prefix is empty or ends in a slash: a sibling whose name only begins like ours is not ours.
    """
    assert not prefix or prefix.endswith("/"), prefix
    # Some servers ignore the prefix.
    return [upload for upload in _all(bucket, prefix) if upload.key.startswith(prefix)]


def abort_uploads(bucket: S3Bucket, uploads: Iterable[PendingUpload]) -> int:
    """Abort uploads, and return how many; one that is gone already does not count."""
    aborted = 0
    for upload in uploads:
        url = f"s3://{bucket.name}/"
        call = Call(url, upload.key, writing=True, full_key=upload.key)
        with suppress(NotFoundError):
            repeated(partial(bucket.abort_upload, call, upload.upload_id), _POLICY)
            aborted += 1
    return aborted


def _all(bucket: S3Bucket, prefix: str) -> Iterator[PendingUpload]:
    query = {"prefix": prefix, "uploads": ""}
    while True:
        try:
            page = _page(bucket, query)
            yield from [_upload(each, page) for each in page.root.iter(f"{page.space}Upload")]
        except (ElementTree.ParseError, ValueError, LookupError) as error:
            message = "the answer to a listing of uploads cannot be parsed"
            raise StoreError("store.refused", message, where=bucket.store_url) from error
        if page.root.findtext(f"{page.space}IsTruncated") != "true":
            return
        markers = {
            name: page.root.findtext(f"{page.space}{tag}") or "" for name, tag in _MARKERS.items()
        }
        markers["key-marker"] = page.unquote(markers["key-marker"])
        if not markers["key-marker"] or all(query.get(k) == v for k, v in markers.items()):
            message = "the listing of uploads does not end"
            raise StoreError("store.refused", message, where=bucket.store_url)
        query |= markers


def _page(bucket: S3Bucket, query: Mapping[str, str]) -> Page:
    """One page. XML cannot hold the control characters of some keys: these are asked for in a code.

    Ceph 16 then encodes keys without saying so. A page that could not be parsed before can be only
    if it is encoded.
    """
    kind = "ListMultipartUploadsResult"
    try:
        return parsed_page(repeated(partial(bucket.list_page, query), _POLICY), kind)
    except ElementTree.ParseError:
        encoded = {**query, "encoding-type": "url"}
        page = parsed_page(repeated(partial(bucket.list_page, encoded), _POLICY), kind)
        return page._replace(unquote=decoded)


def _upload(item: ElementTree.Element, page: Page) -> PendingUpload:
    key, upload_id, begun = (
        text_of(item, page.space + name) for name in ("Key", "UploadId", "Initiated")
    )
    return PendingUpload(page.unquote(key), upload_id, time_of(begun))
