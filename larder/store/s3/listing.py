"""Lists objects, and multipart uploads that nobody will complete, which are then aborted.

Documents are parsed without botocore: boto3's paginator needs seven times as much CPU time (1.4 s
for 20,000 keys).

Protocol: https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html

The parts of an upload are invisible and paid for until it is completed or aborted. Nothing but the
prefix and the time says whose an upload is: both have to be chosen so that it is ours.

Protocol: https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListMultipartUploads.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple
from urllib.parse import unquote_plus
from xml.etree import ElementTree

from larder.errors import StoreError
from larder.store.base import ObjectInfo
from larder.store.buckets import check_order, storage_class, time_of
from larder.store.retry import RetryPolicy, repeated
from larder.store.s3.bucket import S3Bucket

_ENTRY = ("Key", "Size", "ETag", "LastModified", "StorageClass")


class Page(NamedTuple):
    """One page of a listing: its document, the namespace of its tags, and what decodes its keys."""

    root: ElementTree.Element
    space: str
    unquote: Callable[[str], str]


def list_pages(bucket: S3Bucket, base: str, prefix: str, after: str) -> Iterator[list[ObjectInfo]]:
    """Yield pages of objects in order; no page is empty.

    Only those whose keys in the bucket begin with ``prefix`` and come after ``after``; the keys of
    the result are what follows ``base``, and never empty.

    Raises:
        LarderError: See `larder.store.s3.answers`; ``store.refused``: the store does not list in
            order, such as directory buckets of S3 Express, or its answer cannot be parsed.
    """
    query = {"encoding-type": "url", "list-type": "2", "prefix": prefix}
    if after:
        query["start-after"] = after
    hint = "directory buckets cannot be used"
    last = after[len(base) :]
    while True:
        objects, token = read_page(bucket.list_page(query), bucket.store_url, len(base))
        last = check_order(last, (info.key for info in objects), bucket.store_url, hint)
        if objects:
            yield objects
        if not token:
            return
        if token == query.get("continuation-token"):
            message = "the listing does not end"
            raise StoreError("store.refused", message, where=bucket.store_url)
        query = {**query, "continuation-token": token}


def parsed_page(body: bytes, kind: str) -> Page:
    """A page whose document is of a kind; ParseError if it is not XML.

    A server that was asked to encode keys says whether it has done so.
    """
    # The document comes from the server that has the data itself, and expat limits the expansion
    # of entities.
    root = ElementTree.fromstring(body)  # noqa: S314
    space = root.tag.rpartition(kind)[0]
    encoded = root.findtext(f"{space}EncodingType") == "url"
    return Page(root, space, decoded if encoded else str)


def decoded(key: str) -> str:
    """A key that is encoded in a listing."""
    # A plus sign is a space: S3 itself uses form encoding.
    return unquote_plus(key) if "%" in key or "+" in key else key


def read_page(body: bytes, store_url: str, cut: int = 0) -> tuple[list[ObjectInfo], str]:
    """The objects in an answer to ListObjectsV2, and the token of the next one, if there is one.

    So much is cut off their keys, and what has none left, a folder's own object, is left out.
    """
    try:
        page = parsed_page(body, "ListBucketResult")
        tags = [page.space + name for name in _ENTRY]  # joined once per page
        token = ""
        if text_of(page.root, f"{page.space}IsTruncated") == "true":
            token = text_of(page.root, f"{page.space}NextContinuationToken")
        items = page.root.iter(f"{page.space}Contents")
        objects = [_object(item, tags, page.unquote, cut) for item in items]
        return [info for info in objects if info.key], token
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        message = "the answer to a listing cannot be parsed"
        raise StoreError("store.refused", message, where=store_url) from error


def _object(
    item: ElementTree.Element, tags: list[str], unquote: Callable[[str], str], cut: int
) -> ObjectInfo:
    # A listing has millions of these.
    key, size, etag, modified, class_name = map(item.findtext, tags)
    if key is None or size is None or modified is None:
        raise LookupError
    return ObjectInfo(
        unquote(key)[cut:],
        int(size),
        (etag or "").strip('"'),
        time_of(modified),
        "" if class_name == "STANDARD" else storage_class(class_name),
    )


def text_of(item: ElementTree.Element, tag: str) -> str:
    """The text of an element that must be there; LookupError if it is not."""
    text = item.findtext(tag)
    if text is None:
        raise LookupError(tag)
    return text


_MARKERS = {"key-marker": "NextKeyMarker", "upload-id-marker": "NextUploadIdMarker"}


@dataclass(frozen=True, slots=True)
class PendingUpload:
    """A multipart upload, with its key in the bucket, and the time by the server when it began."""

    key: str
    upload_id: str
    begun_us: int


def list_uploads(bucket: S3Bucket, prefix: str, policy: RetryPolicy) -> list[PendingUpload]:
    """The uploads of a bucket that were begun but neither completed nor aborted.

    The prefix is empty or ends in a slash: a sibling whose name only begins like ours is not ours.
    """
    assert not prefix or prefix.endswith("/"), prefix
    # Some servers ignore the prefix.
    uploads = _all(bucket, prefix, policy)
    return [upload for upload in uploads if upload.key.startswith(prefix)]


def _all(bucket: S3Bucket, prefix: str, policy: RetryPolicy) -> Iterator[PendingUpload]:
    query = {"prefix": prefix, "uploads": ""}
    while True:
        try:
            page = _page(bucket, query, policy)
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


def _page(bucket: S3Bucket, query: Mapping[str, str], policy: RetryPolicy) -> Page:
    """One page. XML cannot hold the control characters of some keys: these are asked for in a code.

    Ceph 16 then encodes keys without saying so. A page that could not be parsed before can be only
    if it is encoded.
    """
    kind = "ListMultipartUploadsResult"
    try:
        return parsed_page(repeated(partial(bucket.list_page, query), policy), kind)
    except ElementTree.ParseError:
        encoded = {**query, "encoding-type": "url"}
        page = parsed_page(repeated(partial(bucket.list_page, encoded), policy), kind)
        return page._replace(unquote=decoded)


def _upload(item: ElementTree.Element, page: Page) -> PendingUpload:
    key, upload_id, begun = (
        text_of(item, page.space + name) for name in ("Key", "UploadId", "Initiated")
    )
    return PendingUpload(page.unquote(key), upload_id, time_of(begun))
