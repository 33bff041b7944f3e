"""Lists and aborts multipart uploads that nobody will complete.

The parts of an upload are invisible and paid for until it is completed or aborted. Nothing but the
prefix and the time says whose an upload is: both have to be chosen so that it is ours.

Protocol: https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListMultipartUploads.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from urllib.parse import unquote_plus
from xml.etree import ElementTree

from larder.errors import NotFoundError, StoreError
from larder.store.retry import RetryPolicy, repeated
from larder.store.s3_access import S3Access
from larder.store.s3_errors import Call
from larder.store.s3_http import SignedObjects

__all__ = ["PendingUpload", "abort_uploads", "list_uploads"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_POLICY = RetryPolicy()
_MARKERS = {"key-marker": "NextKeyMarker", "upload-id-marker": "NextUploadIdMarker"}


@dataclass(frozen=True, slots=True)
class PendingUpload:
    """A multipart upload that was begun.

    Attributes:
        key: Of the object that it would make, in the bucket.
        upload_id: The server's name of the upload.
        begun_us: When it was begun, by the server's clock, microseconds since 1970 UTC.
    """

    key: str
    upload_id: str
    begun_us: int


def list_uploads(access: S3Access, *, prefix: str) -> list[PendingUpload]:
    """The uploads of a bucket that were begun but neither completed nor aborted.

    Args:
        access: Provides connections and credentials, and names the bucket.
        prefix: Only keys in the bucket with this prefix, which is empty or ends in a slash: a
            sibling whose name only begins like ours is not ours.

    Raises:
        StoreError: The bucket is missing, or the permission s3:ListBucketMultipartUploads.
        RetryableError: The server kept failing.
    """
    assert not prefix or prefix.endswith("/"), prefix
    # Some servers ignore the prefix.
    return [upload for upload in _all(access, prefix) if upload.key.startswith(prefix)]


def abort_uploads(access: S3Access, uploads: Iterable[PendingUpload]) -> int:
    """Abort uploads, and return how many; one that is gone already does not count.

    Args:
        access: Provides connections and credentials, and names the bucket.
        uploads: From `list_uploads` of the same bucket.

    Raises:
        ObjectError: The permission s3:AbortMultipartUpload is missing.
        StoreError: The bucket is missing, or refuses the credentials.
        RetryableError: The server kept failing.
    """
    aborted = 0
    objects = SignedObjects(access)
    for upload in uploads:
        call = Call(f"s3://{access.bucket}/", upload.key, writing=True)
        abort = partial(objects.abort_upload, upload.key, call, upload.upload_id)
        try:
            repeated(abort, _POLICY)
        except NotFoundError:
            continue
        aborted += 1
    return aborted


def _all(access: S3Access, prefix: str) -> Iterator[PendingUpload]:
    query = {"prefix": prefix, "uploads": ""}
    while True:
        try:
            root, encoded = _answer(access, query)
            space = root.tag.rpartition("ListMultipartUploadsResult")[0]
            yield from [_upload(each, space, encoded) for each in root.iter(f"{space}Upload")]
        except (ElementTree.ParseError, ValueError, LookupError) as error:
            message = "the answer to a listing of uploads cannot be parsed"
            raise StoreError("store.refused", message, where=access.store_url) from error
        if root.findtext(f"{space}IsTruncated") != "true":
            return
        markers = {name: root.findtext(f"{space}{tag}") or "" for name, tag in _MARKERS.items()}
        markers["key-marker"] = _key(markers["key-marker"], encoded)
        if not markers["key-marker"] or all(query.get(k) == v for k, v in markers.items()):
            message = "the listing of uploads does not end"
            raise StoreError("store.refused", message, where=access.store_url)
        query |= markers


def _answer(access: S3Access, query: Mapping[str, str]) -> tuple[ElementTree.Element, bool]:
    """One page, and whether its keys are percent-encoded.

    XML cannot hold the control characters of some keys, so these are asked for in a code. Others
    are not: Ceph 16 encodes them without saying so, and other servers do not although asked.
    """
    objects, call = SignedObjects(access), Call(access.store_url)
    for code in ({}, {"encoding-type": "url"}):
        page = repeated(partial(objects.list_page, {**query, **code}, call), _POLICY)
        try:
            root = ElementTree.fromstring(page)  # noqa: S314 - as in `larder.store.s3_list`
        except ElementTree.ParseError:
            if code:
                raise
        else:
            return root, bool(code)
    raise AssertionError("unreachable")


def _upload(item: ElementTree.Element, space: str, encoded: bool) -> PendingUpload:
    names = ("Key", "UploadId", "Initiated")
    key, upload_id, begun = (item.findtext(space + name) for name in names)
    if not key or not upload_id or not begun:
        raise LookupError
    begun_us = (datetime.fromisoformat(begun) - _EPOCH) // _MICROSECOND
    return PendingUpload(_key(key, encoded), upload_id, begun_us)


def _key(text: str, encoded: bool) -> str:
    return unquote_plus(text) if encoded else text
