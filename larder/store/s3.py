"""S3 and compatible servers: ``s3://bucket/prefix``.

Credentials, region and endpoint follow the standard AWS chain. Requests are signed and sent by
`larder.store.s3_http`; only where boto3 is missing and the credentials are those of a role or an
instance, obstore finds them and moves the bytes (`larder.store.s3_access`). No call is repeated
here, except within streamed writing (`larder.store.s3_write`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from larder.config.urls import cloud_of
from larder.disk import disk_errors
from larder.errors import (
    LarderError,
    NotFoundError,
    ObjectError,
    PreconditionError,
    StoreError,
)
from larder.store.access import DEFAULT_ACCESS, Access
from larder.store.base import BegunUpload, Buffer, Features, ObjectInfo, Place, Readable, Store
from larder.store.etag_trust import etag_trust
from larder.store.keys import check_key, folder_prefix
from larder.store.retry import RetryPolicy
from larder.store.s3_access import S3Access, is_plain
from larder.store.s3_chain import without_boto3
from larder.store.s3_clients import lost_obstore
from larder.store.s3_errors import REGION_UNTOLD, Answer, Call, s3_error
from larder.store.s3_http import SignedObjects
from larder.store.s3_list import S3Listing
from larder.store.s3_obstore import NoRangesError, ObstoreObjects
from larder.store.s3_read import S3Body, S3Reader, Span
from larder.store.s3_settings import environment_endpoint
from larder.store.s3_upload import S3Upload, parts_of
from larder.store.s3_uploads import PendingUpload, abort_uploads, list_uploads
from larder.store.s3_write import S3Writer

__all__ = ["S3Store"]

# Of the first parts of a multipart upload: a stream that is being written holds three of them in
# memory, an upload five.
_PART_BYTES = 16 << 20
_STREAM_PARTS = 2
_UPLOAD_PARTS = 4


_Objects = SignedObjects | ObstoreObjects


class S3Store(Store):
    """The objects of a bucket whose keys begin with a prefix.

    Args:
        bucket: Name of the bucket.
        prefix: Folder in it, with or without a slash at the end.
        access: How it is reached.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        access: Access = DEFAULT_ACCESS,
    ) -> None:
        self._prefix = folder_prefix(prefix)
        self._url = f"s3://{bucket}/{self._prefix}"
        self._access = S3Access(bucket, self._url, access)
        self._signed = SignedObjects(self._access)
        self._listing = S3Listing(self._signed, self._url)
        self._obstore = ObstoreObjects(self._access)
        place = Place(
            "s3", (access.endpoint or environment_endpoint()).rstrip("/"), bucket, self._prefix
        )
        self._features = Features(
            replace_if_match=True,
            etag_is_md5=True,
            etag_trust=etag_trust("s3", bucket, access.endpoint, access.profile),
            place=place,
        )

    @property
    def url(self) -> str:
        """``s3://bucket/prefix/``, literally: nothing is percent-encoded."""
        return self._url

    @property
    def features(self) -> Features:
        """The features of S3. Some compatible servers ignore conditions (such as rclone)."""
        return self._features

    def region(self) -> str:
        """See `larder.store.base.Readable.region`: that of the settings; sends no request."""
        settings = self._access.settings
        return settings.region if cloud_of(settings.endpoint) == "aws" else ""

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        """See `larder.store.base.Readable.list`.

        Leaves out the object that some tools create for the folder itself, whose key is exactly
        this store's prefix.
        """
        after = self._prefix + start_after if start_after else ""
        cut = len(self._prefix)
        with self._told_region():
            for page in self._listing.pages(self._prefix + prefix, after):
                if cut:
                    page = [replace(i, key=i.key[cut:]) for i in page if len(i.key) > cut]
                if page:
                    yield page

    def head(self, key: str) -> ObjectInfo:
        """See `larder.store.base.Readable.head`. If the bucket is missing, so is the object."""
        objects, full, call = self._find(key)
        try:
            with self._told_region():
                return objects.head(full, call)
        except NotFoundError:
            raise
        except ObjectError as error:
            # The answer to a HEAD request has no body, which would say if the key or secret is
            # wrong.
            self.open(key, length=1).close()
            raise error

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> S3Reader:
        """See `larder.store.base.Readable.open`."""
        objects, full, call = self._find(key)
        span = Span(offset, length)
        with self._told_region():
            body = self._begin(objects, full, call, span, if_match)
        if if_match is not None and body.info.etag != if_match:  # for servers that ignore it
            body.close()
            message = "it changed since it was listed"
            raise PreconditionError("object.changed", message, where=call.where)
        return S3Reader(body, span, call.where)

    def put(
        self,
        key: str,
        data: Buffer,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        like: ObjectInfo | None = None,
        md5: str | None = None,
        sync: bool = True,
    ) -> ObjectInfo:
        """See `larder.store.base.Store.put`: a single PUT; see `larder.store.s3_http`.

        ``modified_us`` of the result is from this machine's clock; `head` has the store's.
        """
        del sync
        objects, full, call = self._find(key, writing=True)
        call = replace(call, if_absent=if_absent)

        def put(condition: str | None) -> tuple[str, str | None]:
            return objects.put(full, call, data, condition, like=like, md5=md5)

        with self._told_region():
            etag, checksum = (
                self._replace(put, objects, full, call, if_match) if if_match else put(None)
            )
        size_bytes = len(memoryview(data).cast("B"))
        return ObjectInfo(key, size_bytes, etag, time.time_ns() // 1000, checksum=checksum)

    def _replace(
        self,
        put: Callable[[str], tuple[str, str | None]],
        objects: _Objects,
        full: str,
        call: Call,
        if_match: str,
    ) -> tuple[str, str | None]:
        """Replace the object with this etag.

        Ceph 16 compares the header with the bare digits of the etag, and so refuses every etag in
        the quotes that HTTP requires. If it refuses an etag that is correct, the request is
        repeated without quotes.
        """
        try:
            return put(f'"{if_match}"')
        except NotFoundError:  # the answer of S3 if the object does not exist
            raise s3_error(Answer(412), call) from None
        except PreconditionError:
            with suppress(NotFoundError):
                if objects.head(full, call).etag == if_match:
                    return put(if_match)
            raise

    def writer(self, key: str, *, like: ObjectInfo | None = None, sync: bool = True) -> S3Writer:
        """See `larder.store.base.Store.writer`."""
        del sync
        return self._writer(key, _STREAM_PARTS, like)

    def begin_upload(
        self,
        key: str,
        *,
        like: ObjectInfo | None = None,
        md5: str | None = None,
        resume: str | None = None,
    ) -> S3Upload:
        """See `larder.store.base.Store.begin_upload`."""
        _, full, call = self._find(key, writing=True)
        parts = parts_of(self._access.settings.endpoint)
        with self._told_region():
            return S3Upload(self._signed, full, call, parts, like=like, md5=md5, resume=resume)

    def abort_uploads(self, prefix: str, orphaned: Callable[[BegunUpload], bool]) -> int:
        """See `larder.store.base.Store.abort_uploads`."""
        found = list_uploads(self._access, prefix=self._prefix + prefix)
        now_us = self._signed.clock_us(Call(self._url)) if found else 0
        if not now_us:  # the server does not say how old they are
            return 0

        def is_orphan(upload: PendingUpload) -> bool:
            age_seconds = (now_us - upload.begun_us) / 1e6
            key = upload.key[len(self._prefix) :]
            return orphaned(BegunUpload(key, upload.upload_id, age_seconds))

        return abort_uploads(self._access, list(filter(is_orphan, found)))

    def copy_from(self, source: Readable, info: ObjectInfo, key: str) -> ObjectInfo | None:
        """See `larder.store.base.Store.copy_from`: from any bucket of the same server.

        Within AWS, that is any bucket whose objects the credentials of this store may read. S3
        copies at most 5 GB in one request.
        """
        there, place = source.features.place, self.features.place
        if there is None or place is None or (there.provider, there.server) != ("s3", place.server):
            return None
        _, full, call = self._find(key, writing=True)
        origin = f"{there.bucket}/{there.prefix}{info.key}"
        with self._told_region():
            etag = self._signed.copy(full, call, origin, info.etag)
        return ObjectInfo(key, info.size_bytes, etag, time.time_ns() // 1000)

    def upload(self, key: str, path: Path) -> ObjectInfo:
        """See `larder.store.base.Store.upload`."""
        with disk_errors(path, reading=True), open(path, "rb") as source:
            first = source.read(_PART_BYTES)
            if len(first) < _PART_BYTES:
                return self.put(key, first)
            with self._writer(key, _UPLOAD_PARTS) as writer:
                while first:
                    writer.write(first)
                    first = source.read(_PART_BYTES)
                return writer.commit()

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        """See `larder.store.base.Store.delete`."""
        objects, full, call = self._find(key, writing=True)
        with suppress(NotFoundError), self._told_region():
            if if_match is not None:
                self._signed.delete(full, call, if_match)
            else:
                objects.delete(full, call)

    def _find(self, key: str, *, writing: bool = False) -> tuple[_Objects, str, Call]:
        """The client for a key, the key in the bucket, and the call for messages."""
        full = self._prefix + key
        check_key(key, self._url, prefix=self._prefix)
        call = Call(self._url, key, writing)
        if not self._access.signs and is_plain(full) and not lost_obstore():
            return self._obstore, full, call
        return self._signed, full, call

    def _writer(self, key: str, parts_in_flight: int, like: ObjectInfo | None = None) -> S3Writer:
        _, full, call = self._find(key, writing=True)
        policy = RetryPolicy(deadline_seconds=self._access.access.give_up_seconds)
        return S3Writer(self._signed, full, call, _PART_BYTES, parts_in_flight, like, policy)

    def _begin(
        self,
        objects: _Objects,
        full: str,
        call: Call,
        span: Span,
        if_match: str | None,
    ) -> S3Body:
        """Start reading; S3 itself cannot read an empty span."""
        if span.length == 0:
            return _nothing(objects.head(full, call), call, span)
        try:
            return objects.open(full, call, span, if_match)
        except NoRangesError:
            # Only obstore refuses such answers, and it is only used without boto3.
            raise without_boto3("ranges of objects of this server need") from None
        except ObjectError as error:
            if error.code != "object.truncated":
                raise
            return _nothing(objects.head(full, call), call, span)

    @contextmanager
    def _told_region(self) -> Iterator[None]:
        """Look up the region of the bucket if an error only says that the region is wrong."""
        try:
            yield
        except StoreError as error:
            if error.message != REGION_UNTOLD:
                raise
            raise self._elsewhere() from error

    def _elsewhere(self) -> LarderError:
        region = ""
        with suppress(LarderError):
            region = self._signed.bucket_region(Call(self._url))
        return s3_error(Answer(301, "PermanentRedirect", region=region), Call(self._url))


def _nothing(info: ObjectInfo, call: Call, span: Span) -> S3Body:
    """An empty span of an object, if the object is long enough."""
    if span.offset > info.size_bytes:
        message = f"it has only {info.size_bytes} bytes, none at {span.offset}"
        raise ObjectError("object.truncated", message, where=call.where)
    return S3Body(info, iter(()), lambda: None)
