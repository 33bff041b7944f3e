"""The objects of a bucket as a store.

No call is repeated here, except within streamed writing and within a copy of several requests.

An etag here is that of `larder.store.gcs.objects`, made from the content; conditions are met by
GCS's generations: the object is described, its etag compared, and its generation is then the
condition of the write. So two states with the same bytes are the same, as they are for Larder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from larder.config.access import DEFAULT_ACCESS, Access
from larder.disk import disk_errors
from larder.errors import NotFoundError, ObjectError, PreconditionError, StoreError
from larder.store.base import Buffer, Features, ObjectInfo, Place, Readable, Reader, Store
from larder.store.calls import Call, Span
from larder.store.etag_trust import etag_trust
from larder.store.gcs.bucket import GcsBucket, GcsObject, Request
from larder.store.gcs.credentials import find_endpoint, import_gcsfs
from larder.store.gcs.read import describe, list_pages, open_object
from larder.store.gcs.rewrite import rewrite
from larder.store.gcs.write import CHUNK_BYTES, GcsWriter, put_object
from larder.store.keys import check_key, folder_prefix, object_url
from larder.store.retry import RetryPolicy

_STREAM_POLICY = RetryPolicy()


class GcsStore(Store):
    """The objects of a bucket whose keys begin with a prefix.

    The policy says how long requests are repeated where only this store can repeat them.

    Raises:
        ConfigError: ``config.missing_package``.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        access: Access = DEFAULT_ACCESS,
        policy: RetryPolicy = _STREAM_POLICY,
    ) -> None:
        import_gcsfs()
        self._prefix = folder_prefix(prefix)
        self._url = f"gs://{bucket}/{self._prefix}"
        seconds = min(policy.deadline_seconds, access.give_up_seconds)
        policy = replace(policy, deadline_seconds=seconds)
        self._bucket = GcsBucket(bucket, self._url, access, policy)
        endpoint = find_endpoint(access)
        self._features = Features(
            replace_if_match=True,
            etag_is_md5=True,
            etag_trust=etag_trust("gs", bucket, endpoint),
            place=Place("gs", endpoint, bucket, self._prefix),
        )

    @property
    def url(self) -> str:
        """``gs://bucket/prefix/``, literally: nothing is percent-encoded."""
        return self._url

    @property
    def features(self) -> Features:
        """The features of GCS. Emulators ignore conditions."""
        return self._features

    def region(self) -> str:
        """See `larder.store.base.Readable.region`: one request, for the bucket's location.

        It takes the permission ``storage.buckets.get``, which nothing else here needs: without it,
        the region is not known.
        """
        path = self._bucket.path().removesuffix("/o")
        try:
            request = Request("GET", path, {"fields": "location"})
            location = self._bucket.send(request, Call(self._url)).json().get("location")
            return str(location or "")
        except (ObjectError, StoreError):
            return ""

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        """See `larder.store.base.Readable.list`.

        Leaves out the object that some tools create for the folder itself, whose key is exactly
        this store's prefix.
        """
        after = self._prefix + start_after
        return list_pages(self._bucket, self._prefix, self._prefix + prefix, after)

    def head(self, key: str) -> ObjectInfo:
        """See `larder.store.base.Readable.head`."""
        return describe(self._object(key))

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        """See `larder.store.base.Readable.open`."""
        span, whole = Span(offset, length), offset == 0 and length is None
        return open_object(self._object(key), span, if_match, described=whole)

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        """See `larder.store.base.Readable.get`."""
        with open_object(self._object(key), Span(offset, length), if_match) as reader:
            return b"".join(reader)

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
        """See `larder.store.base.Store.put`; the server verifies a CRC32C."""
        del sync  # every write is durable
        target = self._object(key, writing=True, if_absent=if_absent)
        generation = "0" if if_absent else None
        if if_match is not None:
            try:
                generation = self._generation(key, if_match)
            except NotFoundError:
                raise self._changed(key) from None
        return put_object(target, data, like=like, md5=md5, generation=generation)

    def _generation(self, key: str, etag: str) -> str | None:
        """The generation of the object, which must have this etag."""
        info = self.head(key)
        if info.etag != etag:
            raise self._changed(key)
        return info.generation

    def _changed(self, key: str) -> PreconditionError:
        where = object_url(self._url, key)
        return PreconditionError("object.changed", "it changed since it was listed", where=where)

    def writer(self, key: str, *, like: ObjectInfo | None = None, sync: bool = True) -> GcsWriter:
        """See `larder.store.base.Store.writer`."""
        del sync
        return GcsWriter(self._object(key, writing=True), like)

    def upload(self, key: str, path: Path) -> ObjectInfo:
        """See `larder.store.base.Store.upload`."""
        with (
            disk_errors(path, reading=True),
            open(path, "rb") as source,
            self.writer(key) as writer,
        ):
            while data := source.read(CHUNK_BYTES):
                writer.write(data)
            return writer.commit()

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        """See `larder.store.base.Store.delete`."""
        with suppress(NotFoundError):
            generation = None if if_match is None else self._generation(key, if_match)
            self._object(key).send("DELETE", {"ifGenerationMatch": generation})

    def copy_from(self, source: Readable, info: ObjectInfo, key: str) -> ObjectInfo | None:
        """See `larder.store.base.Store.copy_from`: a rewrite, of one state of the object alone.

        Within a location and storage class it takes no time, whatever the size.
        """
        place, ours = source.features.place, self._features.place
        if place is None or ours is None or place.provider != "gs" or place.server != ours.server:
            return None
        return rewrite(source, place, info, self._object(key, writing=True))

    def _object(self, key: str, *, writing: bool = False, if_absent: bool = False) -> GcsObject:
        check_key(key, self._url, prefix=self._prefix)
        return GcsObject(self._bucket, self._prefix + key, Call(self._url, key, writing, if_absent))
