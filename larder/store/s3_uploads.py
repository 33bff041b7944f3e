"""Lists and aborts multipart uploads that nobody will complete.

The parts of an upload are invisible and paid for until it is completed or aborted. Nothing but the
prefix and the time says whose an upload is: both have to be chosen so that it is ours.

Protocol: https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListMultipartUploads.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote_plus

from larder.errors import NotFoundError
from larder.store.s3_access import S3Access
from larder.store.s3_boto import boto_errors
from larder.store.s3_errors import Call

__all__ = ["Upload", "abort_uploads", "list_uploads"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MARKERS = (("KeyMarker", "NextKeyMarker"), ("UploadIdMarker", "NextUploadIdMarker"))


@dataclass(frozen=True, slots=True)
class Upload:
    """A multipart upload that was begun.

    Attributes:
        key: Of the object that it would make, in the bucket.
        upload_id: The server's name of the upload.
        begun_us: When it was begun, by the server's clock, microseconds since 1970 UTC.
    """

    key: str
    upload_id: str
    begun_us: int


def list_uploads(
    access: S3Access, *, prefix: str, since_us: int | None = None, before_us: int | None = None
) -> list[Upload]:
    """The uploads of a bucket that were begun but neither completed nor aborted.

    Args:
        access: Provides the client, and names the bucket.
        prefix: Only keys in the bucket with this prefix, which is empty or ends in a slash: a
            sibling whose name only begins like ours is not ours.
        since_us: Only uploads begun at this time or later, microseconds since 1970 UTC.
        before_us: Only uploads begun before this time.

    Raises:
        StoreError: The bucket is missing, or the permission for s3:ListBucketMultipartUploads.
        RetryableError: The server kept failing.
    """
    assert not prefix or prefix.endswith("/"), prefix
    return [
        upload
        for upload in _all(access, prefix)
        # Some servers ignore the prefix.
        if upload.key.startswith(prefix)
        and (since_us is None or upload.begun_us >= since_us)
        and (before_us is None or upload.begun_us < before_us)
    ]


def abort_uploads(access: S3Access, uploads: Iterable[Upload]) -> int:
    """Abort uploads, and return how many there were; one that is gone already does not count.

    Args:
        access: Provides the client, and names the bucket.
        uploads: From `list_uploads` of the same bucket.

    Raises:
        StoreError: The permission for s3:AbortMultipartUpload is missing.
        RetryableError: The server kept failing.
    """
    aborted = 0
    client = access.retrying_boto
    for upload in uploads:
        call = Call(f"s3://{access.bucket}/", upload.key, writing=True)
        with suppress(NotFoundError), boto_errors(call):
            client.abort_multipart_upload(
                Bucket=access.bucket, Key=upload.key, UploadId=upload.upload_id
            )
            aborted += 1
    return aborted


def _all(access: S3Access, prefix: str) -> Iterator[Upload]:
    # Without EncodingType, XML cannot hold every key; botocore decodes the answer of other listings
    # only, and its paginator would send markers encoded twice.
    wanted: dict[str, Any] = {"Bucket": access.bucket, "Prefix": prefix, "EncodingType": "url"}
    client = access.retrying_boto
    while True:
        with boto_errors(Call(access.store_url)):
            page = client.list_multipart_uploads(**wanted)
        encoded = page.get("EncodingType") == "url"
        for each in page.get("Uploads", ()):
            key = unquote_plus(each["Key"]) if encoded else each["Key"]
            begun = (each["Initiated"] - _EPOCH) // _MICROSECOND
            yield Upload(key, each["UploadId"], begun)
        markers = {name: page.get(following) for name, following in _MARKERS}
        if encoded and markers["KeyMarker"]:
            markers["KeyMarker"] = unquote_plus(markers["KeyMarker"])
        if not page.get("IsTruncated") or all(wanted.get(k) == v for k, v in markers.items()):
            return
        wanted |= {name: marker for name, marker in markers.items() if marker}
