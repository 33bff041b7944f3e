"""The store of a bucket. No call is repeated here, except within streamed writing (`writer`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from larder.config.access import DEFAULT_ACCESS, Access
from larder.config.urls import cloud_of
from larder.disk import disk_errors
from larder.errors import (
    LarderError,
    NotFoundError,
    ObjectError,
    PreconditionError,
    StoreError,
)
from larder.store.base import BegunUpload, Buffer, Features, ObjectInfo, Place, Readable, Store
from larder.store.calls import AnswerReader, Call, Span
from larder.store.etag_trust import etag_trust
from larder.store.keys import check_key, folder_prefix
from larder.store.retry import RetryPolicy
from larder.store.s3.account import S3Bucket
from larder.store.s3.credentials import environment_endpoint
from larder.store.s3.errors import REGION_UNTOLD, Refusal, s3_error
from larder.store.s3.listing import S3Listing
from larder.store.s3.multipart import S3Upload, parts_of
from larder.store.s3.objects import S3Objects
from larder.store.s3.uploads import PendingUpload, abort_uploads, list_uploads
from larder.store.s3.writer import S3Writer

# Of the first parts of a multipart upload: a stream that is being written holds three of them in
# memory, an upload five.
_PART_BYTES = 16 << 20
_STREAM_PARTS = 2
_UPLOAD_PARTS = 4


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
        self._bucket = S3Bucket(bucket, self._url, access)
        self._objects = S3Objects(self._bucket)
        self._listing = S3Listing(self._objects, self._url)
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
        settings = self._bucket.account.settings
        return settings.region if cloud_of(settings.endpoint) == "aws" else ""

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        """See `larder.store.base.Readable.list`.

        Leaves out the object that some tools create for the folder itself, whose key is exactly
        this store's prefix.
        """
        after = self._prefix + start_after if start_after else ""
        cut = len(self._prefix)
        with self._named_region():
            for page in self._listing.pages(self._prefix + prefix, after):
                if cut:
                    page = [replace(i, key=i.key[cut:]) for i in page if len(i.key) > cut]
                if page:
                    yield page

    def head(self, key: str) -> ObjectInfo:
        """See `larder.store.base.Readable.head`. If the bucket is missing, so is the object."""
        full, call = self._find(key)
        try:
            with self._named_region():
                return self._objects.head(full, call)
        except NotFoundError:
            raise
        except ObjectError as error:
            # The answer to a HEAD request has no body, which would say if the key or secret is
            # wrong.
            self.open(key, length=1).close()
            raise error

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> AnswerReader:
        """See `larder.store.base.Readable.open`."""
        full, call = self._find(key)
        with self._named_region():
            reader = self._open(full, call, Span(offset, length), if_match)
        if if_match is not None and reader.info.etag != if_match:  # for servers that ignore it
            reader.close()
            message = "it changed since it was listed"
            raise PreconditionError("object.changed", message, where=call.where)
        return reader

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
        """See `larder.store.base.Store.put`: a single PUT; see `objects`.

        ``modified_us`` of the result is from this machine's clock; `head` has the store's.
        """
        del sync
        full, call = self._find(key, writing=True)
        call = replace(call, if_absent=if_absent)

        def put(condition: str | None) -> tuple[str, str | None]:
            return self._objects.put(full, call, data, condition, like=like, md5=md5)

        with self._named_region():
            etag, checksum = self._replace(put, full, call, if_match) if if_match else put(None)
        size_bytes = len(memoryview(data).cast("B"))
        return ObjectInfo(key, size_bytes, etag, time.time_ns() // 1000, checksum=checksum)

    def _replace(
        self,
        put: Callable[[str], tuple[str, str | None]],
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
            raise s3_error(Refusal(412), call) from None
        except PreconditionError:
            with suppress(NotFoundError):
                if self._objects.head(full, call).etag == if_match:
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
        full, call = self._find(key, writing=True)
        parts = parts_of(self._bucket.account.settings.endpoint)
        with self._named_region():
            return S3Upload(self._objects, full, call, parts, like=like, md5=md5, resume=resume)

    def abort_uploads(self, prefix: str, orphaned: Callable[[BegunUpload], bool]) -> int:
        """See `larder.store.base.Store.abort_uploads`."""
        pending = list_uploads(self._bucket, prefix=self._prefix + prefix)
        now_us = self._objects.clock_us(Call(self._url)) if pending else 0
        if not now_us:  # the server does not say how old they are
            return 0

        def is_orphan(upload: PendingUpload) -> bool:
            age_seconds = (now_us - upload.begun_us) / 1e6
            key = upload.key[len(self._prefix) :]
            return orphaned(BegunUpload(key, upload.upload_id, age_seconds))

        return abort_uploads(self._bucket, list(filter(is_orphan, pending)))

    def copy_from(self, source: Readable, info: ObjectInfo, key: str) -> ObjectInfo | None:
        """See `larder.store.base.Store.copy_from`: from any bucket of the same server.

        Within AWS, that is any bucket whose objects the credentials of this store may read. S3
        copies at most 5 GB in one request.
        """
        origin, place = source.features.place, self.features.place
        if not (origin and place) or (origin.provider, origin.server) != ("s3", place.server):
            return None
        full, call = self._find(key, writing=True)
        path = f"{origin.bucket}/{origin.prefix}{info.key}"
        with self._named_region():
            etag = self._objects.copy(full, call, path, info.etag)
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
        full, call = self._find(key, writing=True)
        with suppress(NotFoundError), self._named_region():
            self._objects.delete(full, call, if_match)

    def _find(self, key: str, *, writing: bool = False) -> tuple[str, Call]:
        """The key in the bucket, and the call for messages."""
        check_key(key, self._url, prefix=self._prefix)
        return self._prefix + key, Call(self._url, key, writing)

    def _writer(self, key: str, parts_in_flight: int, like: ObjectInfo | None = None) -> S3Writer:
        full, call = self._find(key, writing=True)
        policy = RetryPolicy(deadline_seconds=self._bucket.access.give_up_seconds)
        return S3Writer(self._objects, full, call, _PART_BYTES, parts_in_flight, like, policy)

    def _open(self, full: str, call: Call, span: Span, if_match: str | None) -> AnswerReader:
        """Start reading; S3 itself cannot read an empty span."""
        if span.length != 0:
            try:
                return self._objects.open(full, call, span, if_match)
            except ObjectError as error:
                if error.code != "object.truncated":
                    raise
        info = self._objects.head(full, call)
        if span.offset > info.size_bytes:
            message = f"it has only {info.size_bytes} bytes, none at {span.offset}"
            raise ObjectError("object.truncated", message, where=call.where)
        return AnswerReader(info, None, span, call)

    @contextmanager
    def _named_region(self) -> Iterator[None]:
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
            region = self._objects.bucket_region(Call(self._url))
        return s3_error(Refusal(301, "PermanentRedirect", region=region), Call(self._url))
