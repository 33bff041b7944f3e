"""S3 objects through boto3: slower, but works with any key and with more servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from larder.errors import LarderError
from larder.store.base import Buffer, ObjectInfo
from larder.store.s3_access import S3Access
from larder.store.s3_errors import Answer, Call, s3_error, unanswered
from larder.store.s3_read import S3Body, Span, storage_class

__all__ = ["BotoObjects", "boto_errors"]

_CHUNK_BYTES = 1 << 20


class BotoObjects:
    """The four calls on one object.

    Args:
        access: Provides the client.
    """

    def __init__(self, access: S3Access) -> None:
        self._access = access

    def head(self, full_key: str, call: Call) -> ObjectInfo:
        """Describe an object."""
        client = self._access.boto
        with boto_errors(call):
            answer = client.head_object(Bucket=self._access.bucket, Key=full_key)
        return _info(call.key, answer)

    def open(self, full_key: str, call: Call, span: Span, if_match: str | None) -> S3Body:
        """Start reading a span of an object."""
        wanted: dict[str, Any] = {"Bucket": self._access.bucket, "Key": full_key}
        if if_match is not None:
            wanted["IfMatch"] = f'"{if_match}"'
        if span.length is not None:
            wanted["Range"] = f"bytes={span.offset}-{span.offset + span.length - 1}"
        elif span.offset:
            wanted["Range"] = f"bytes={span.offset}-"
        client = self._access.boto
        with boto_errors(call):
            answer = client.get_object(**wanted)
        body = answer["Body"]
        return S3Body(_info(call.key, answer), _chunks(body, call), body.close)

    def put(self, full_key: str, call: Call, data: Buffer, if_match: str | None) -> str:
        """Write an object in one request and return its etag.

        Args:
            full_key: Its key in the bucket.
            call: For messages, and whether the object must be absent.
            data: Its content.
            if_match: The If-Match header, including quotes.
        """
        wanted: dict[str, Any] = {"Bucket": self._access.bucket, "Key": full_key}
        if call.if_absent:
            wanted["IfNoneMatch"] = "*"
        if if_match is not None:
            wanted["IfMatch"] = if_match
        client = self._access.boto
        with boto_errors(call):
            answer = client.put_object(**wanted, Body=bytes(data))
        return str(answer["ETag"]).strip('"')

    def delete(self, full_key: str, call: Call) -> None:
        """Remove an object."""
        client = self._access.boto
        with boto_errors(call):
            client.delete_object(Bucket=self._access.bucket, Key=full_key)


@contextmanager
def boto_errors(call: Call) -> Iterator[None]:
    """Raise what botocore's errors mean for a call."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        raise _meaning(error.response, call) from error
    except BotoCoreError as error:
        raise unanswered(f"{type(error).__name__} {error}", call) from error


def _meaning(response: dict[str, Any], call: Call) -> LarderError:
    said = response.get("Error", {})
    meta = response.get("ResponseMetadata", {})
    region = said.get("Region") or meta.get("HTTPHeaders", {}).get("x-amz-bucket-region", "")
    status = int(meta.get("HTTPStatusCode", 0))
    code = str(said.get("Code", ""))
    # If an answer has no body, as for HEAD, botocore returns the status as the code.
    code = "" if code.isdigit() else code
    return s3_error(Answer(status, code, str(said.get("Message", "")), str(region)), call)


def _info(key: str, answer: dict[str, Any]) -> ObjectInfo:
    size_bytes = int(answer["ContentLength"])
    total = str(answer.get("ContentRange", "")).rpartition("/")[2]
    etag = str(answer.get("ETag", "")).strip('"')
    modified_us = round(answer["LastModified"].timestamp() * 1e6)
    return ObjectInfo(
        key,
        int(total) if total.isdigit() else size_bytes,
        etag,
        modified_us,
        storage_class=storage_class(answer.get("StorageClass")),
        generation=answer.get("VersionId"),
        content_type=answer.get("ContentType"),
        metadata=answer.get("Metadata", {}),
    )


def _chunks(body: Any, call: Call) -> Iterator[bytes]:
    with boto_errors(call):
        yield from body.iter_chunks(_CHUNK_BYTES)
