"""The objects and unfinished uploads of a bucket as a store.

No call is repeated here, except within streamed writing (`writer`).

Listings are parsed without botocore: boto3's paginator needs seven times as much CPU time (1.4 s
for 20,000 keys).

Protocol: https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html and
API_ListMultipartUploads.html beside it
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus
from xml.etree import ElementTree

from larder.bounds import XML_TAGS
from larder.config.urls import DEFAULT_ACCESS, Access, cloud_of
from larder.errors import NotFoundError, ObjectError, PreconditionError, StoreError
from larder.store.base import (
    Buffer,
    ObjectInfo,
    Readable,
    Reader,
    UploadOptions,
    WriteOptions,
)
from larder.store.buckets import BucketStore, list_pages, size_of, storage_class, time_of
from larder.store.calls import AnswerReader, ByteRange, Call, conflict, undescribed
from larder.store.etags import are_equal, is_weak, plain_etag
from larder.store.http import Answer
from larder.store.keys import object_url
from larder.store.s3.answers import copy_source, document, element, etag_of, object_info
from larder.store.s3.bucket import S3Bucket, if_match_header
from larder.store.s3.multipart import S3Upload, S3Writer

if TYPE_CHECKING:
    from typing import Unpack


_ENTRY = ("Key", "Size", "ETag", "LastModified", "StorageClass")


def read_page(body: bytes, store_url: str, cut: int = 0) -> tuple[list[ObjectInfo], str]:
    """Parse an answer to ListObjectsV2: its objects, and the token of the next page, if any.

    The first ``cut`` characters are removed from the keys. A folder's own object is omitted: no key
    is left. The answer says whether the server has encoded keys as requested.
    """
    try:
        root = _parsed(body, store_url)
        space = root.tag.rpartition("ListBucketResult")[0]
        unquote = _decoded if root.findtext(f"{space}EncodingType") == "url" else str
        tags = [space + name for name in _ENTRY]  # joined once per page
        token = ""
        if _text(root, f"{space}IsTruncated") == "true":
            token = _text(root, f"{space}NextContinuationToken")
        objects = [
            _object(item, tags, unquote, cut, store_url) for item in root.iter(f"{space}Contents")
        ]
        return [info for info in objects if info.key], token
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        message = "the answer to a listing cannot be parsed"
        raise StoreError("store.refused", message, where=store_url) from error


def _parsed(body: bytes, store_url: str) -> ElementTree.Element:
    """Parse a page, refusing entities and more than `XML_TAGS` tags; return its root."""
    tags = body.count(b"<")
    # A document in UTF-16 would hide both its tags and a DOCTYPE.
    if tags > XML_TAGS or b"<!DOCTYPE" in body or b"\0" in body:
        message = f"the answer has {tags:,} tags, or entities; a listing at most {XML_TAGS:,}"
        raise StoreError("store.refused", message, where=store_url, hint="check the endpoint")
    return ElementTree.fromstring(body)  # noqa: S314 - see above


def _decoded(key: str) -> str:
    # A plus sign is a space: S3 itself uses form encoding.
    return unquote_plus(key) if "%" in key or "+" in key else key


def _object(
    item: ElementTree.Element,
    tags: list[str],
    unquote: Callable[[str], str],
    cut: int,
    store_url: str,
) -> ObjectInfo:
    # A listing has millions of these.
    key, size, etag, modified, class_name = map(item.findtext, tags)
    if key is None or size is None:
        raise LookupError
    key = unquote(key)[cut:]
    try:
        return ObjectInfo(
            key,
            size_of(size),
            plain_etag(etag or ""),
            time_of(modified),
            "" if class_name == "STANDARD" else storage_class(class_name),
        )
    except ValueError as error:
        fields = {"Size": size, "LastModified": modified}
        raise undescribed(object_url(store_url, key), fields) from error


def _text(item: ElementTree.Element, tag: str) -> str:
    text = item.findtext(tag)
    if text is None:
        raise LookupError(tag)
    return text


_MARKERS = {"key-marker": "NextKeyMarker", "upload-id-marker": "NextUploadIdMarker"}


def list_uploads(bucket: S3Bucket, prefix: str) -> Iterator[tuple[str, str, int]]:
    """Yield key in the bucket, ID and beginning in microseconds of each upload in progress."""
    query = {"prefix": prefix, "uploads": ""}
    while True:
        try:
            root = _parsed(bucket.list_page(query), bucket.store_url)
            space = root.tag.rpartition("ListMultipartUploadsResult")[0]
            for item in root.iter(f"{space}Upload"):
                key, upload = _text(item, f"{space}Key"), _text(item, f"{space}UploadId")
                if key.startswith(prefix):  # some servers ignore the prefix
                    yield key, upload, time_of(item.findtext(f"{space}Initiated"))
            if root.findtext(f"{space}IsTruncated") != "true":
                return
            markers = {name: _text(root, space + tag) for name, tag in _MARKERS.items()}
        except (ElementTree.ParseError, ValueError, LookupError) as error:
            message = "the answer to a listing of uploads cannot be parsed"
            raise StoreError("store.refused", message, where=bucket.store_url) from error
        if markers.items() <= query.items():
            message = "the listing of uploads does not end"
            raise StoreError("store.refused", message, where=bucket.store_url)
        query |= markers


class S3Store(BucketStore):
    def __init__(self, bucket: str, prefix: str = "", access: Access = DEFAULT_ACCESS) -> None:
        super().__init__("s3", bucket, prefix, access)
        self._bucket = S3Bucket(bucket, self._url, access)

    def region(self) -> str:
        """Return the region of the settings, without a request."""
        settings = self._bucket.account.settings
        return settings.region if cloud_of(settings.endpoint) == "aws" else ""

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        """Omit the object that some tools create for the folder itself."""
        first = {"encoding-type": "url", "list-type": "2", "prefix": self._prefix + prefix}
        if start_after:
            first["start-after"] = self._prefix + start_after

        def read(token: str) -> tuple[list[ObjectInfo], str]:
            query = {**first, "continuation-token": token} if token else first
            return read_page(self._bucket.list_page(query), self._url, len(self._prefix))

        return list_pages(read, start_after, self._url)

    def head(self, key: str) -> ObjectInfo:
        """Describe an object. A missing bucket is ``object.missing`` too."""
        return self._bucket.head(self._call(key))

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        return self._open(self._call(key), ByteRange(offset, length), if_match).checked(if_match)

    def _open(self, call: Call, span: ByteRange, if_match: str | None) -> AnswerReader:
        """Start reading; S3 itself cannot read an empty span."""
        if span.length != 0:
            try:
                return self._content(call, span, if_match)
            except ObjectError as error:
                if error.code != "object.truncated":
                    raise
        return AnswerReader(self._bucket.head(call), None, span, call)

    def _content(self, call: Call, span: ByteRange, if_match: str | None) -> AnswerReader:
        headers = if_match_header(if_match)
        if span.range:
            headers["range"] = span.range
        answer = self._bucket.send("GET", call, headers=headers)
        span.check(answer, call)
        return AnswerReader(object_info(call, answer.headers), answer, span, call)

    def _answers(self, calls: Iterable[tuple[Call, str]], ahead: int) -> Generator[Answer]:
        return self._bucket.get_each(calls, ahead)

    def _etag(self, answer: Answer, call: Call) -> str:
        del call
        return etag_of(answer.headers)

    def put(self, key: str, data: Buffer, **options: Unpack[WriteOptions]) -> ObjectInfo:
        """Write with a single PUT. ``modified_us`` of the result is from this machine's clock."""
        call = self._call(key, writing=True, if_absent=options.get("if_absent", False))
        put = partial(
            self._bucket.put, call, data, like=options.get("like"), md5=options.get("md5")
        )
        if_match = options.get("if_match")
        return self._replace(put, call, if_match) if if_match else put(None)

    def _replace(self, put: Callable[[str], ObjectInfo], call: Call, if_match: str) -> ObjectInfo:
        """Replace the object with this etag.

        Ceph 16 compares the header with the bare etag, and so refuses every etag in the quotes that
        HTTP requires. If the server refuses a correct etag, the request is repeated without quotes.
        A weak etag meets no condition (RFC 9110, 13.1.1), but a proxy may have weakened it, so its
        strong form is sent.
        """
        try:
            return put(f'"{if_match.removeprefix("W/")}"')
        except NotFoundError:  # S3's answer if the object does not exist
            raise conflict(call) from None
        except PreconditionError:
            with suppress(NotFoundError):
                if not is_weak(if_match) and self._bucket.head(call).etag == if_match:
                    return put(if_match)
            raise

    def begin_upload(self, key: str, **options: Unpack[UploadOptions]) -> S3Upload:
        return S3Upload(self._bucket, self._call(key, writing=True), **options)

    def copy_from(self, source: Readable, info: ObjectInfo, key: str) -> ObjectInfo | None:
        """Copy from any bucket of the same server: at most 5 GB, as S3 does in one request.

        At AWS, the credentials of this store must be allowed to read the source's objects.
        """
        origin = self._same_server(source)
        if origin is None:
            return None
        call = self._call(key, writing=True)
        headers = {**self._bucket.encryption(), **copy_source(origin, info)}
        with self._bucket.send("PUT", call, headers=headers) as answer:
            etag = plain_etag(element(document(answer, call), "ETag"))
        return ObjectInfo(key, info.size_bytes, etag, time.time_ns() // 1000)

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        """Delete an object; a weak etag is compared just before."""
        if if_match and is_weak(if_match) and not are_equal(self.head(key).etag, if_match):
            raise conflict(self._call(key))
        headers = if_match_header(if_match)
        with suppress(NotFoundError):
            self._bucket.send("DELETE", self._call(key, writing=True), headers=headers).close()

    def _writer(self, key: str, like: ObjectInfo | None, parts: int) -> S3Writer:
        return S3Writer(self._bucket, self._call(key, writing=True), like, parts, self._policy)

    def abort_uploads(self, older_seconds: float, kept: Collection[str] = ()) -> int:
        uploads = [each for each in list_uploads(self._bucket, self._prefix) if each[1] not in kept]
        before_us = self._bucket.clock_us() - older_seconds * 1e6 if uploads else 0
        abandoned = [(key, upload) for key, upload, begun_us in uploads if begun_us < before_us]
        for key, upload in abandoned:
            call = self._call(key[len(self._prefix) :], writing=True)
            with suppress(NotFoundError):  # already gone
                self._bucket.abort_upload(call, upload)
        return len(abandoned)
