"""The objects of a bucket as a store.

No call is repeated here, except within streamed writing and within a copy of several requests.

An etag here is that of `larder.store.gcs.objects`, made from the content; conditions are met by
GCS's generations: the object is described, its etag compared, and its generation is then the
condition of the write. So two states with the same bytes are the same, as they are for Larder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from larder.config.location import DEFAULT_ACCESS, Access
from larder.errors import NotFoundError, ObjectError, StoreError
from larder.store.base import Buffer, ObjectInfo, Readable, Reader
from larder.store.buckets import BucketStore
from larder.store.calls import Call, Span, conflict
from larder.store.gcs.bucket import GcsBucket, GcsObject, Request
from larder.store.gcs.credentials import import_gcsfs
from larder.store.gcs.read import describe, list_pages, open_object
from larder.store.gcs.write import GcsWriter, put_object, rewrite
from larder.store.retry import RetryPolicy


class GcsStore(BucketStore):
    """The objects of a bucket whose keys begin with a prefix.

    The policy says how requests are repeated where only this store can repeat them.

    Raises:
        ConfigError: ``config.missing_package``.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        access: Access = DEFAULT_ACCESS,
        policy: RetryPolicy | None = None,
    ) -> None:
        import_gcsfs()
        super().__init__("gs", bucket, prefix, access)
        self._bucket = GcsBucket(bucket, self._url, access, policy or self._policy)

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
        return describe(self._object(key))

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        span, whole = Span(offset, length), offset == 0 and length is None
        return open_object(self._object(key), span, if_match, described=whole)

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
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
        del sync
        target = self._object(key, writing=True, if_absent=if_absent)
        generation = "0" if if_absent else None
        if if_match is not None:
            try:
                generation = self._generation(key, if_match)
            except NotFoundError:
                raise conflict(target.call) from None
        return put_object(target, data, like=like, md5=md5, generation=generation)

    def _generation(self, key: str, etag: str) -> str | None:
        """The generation of the object, which must have this etag."""
        info = self.head(key)
        if info.etag != etag:
            raise conflict(self._call(key))
        return info.generation

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        with suppress(NotFoundError):
            generation = None if if_match is None else self._generation(key, if_match)
            self._object(key).send("DELETE", {"ifGenerationMatch": generation})

    def copy_from(self, source: Readable, info: ObjectInfo, key: str) -> ObjectInfo | None:
        """See `larder.store.base.Store.copy_from`: a rewrite, of one state of the object alone.

        Within a location and storage class it takes no time, whatever the size.
        """
        place = self._same_server(source)
        target = self._object(key, writing=True)
        return rewrite(source, place, info, target) if place else None

    def _object(self, key: str, *, writing: bool = False, if_absent: bool = False) -> GcsObject:
        return GcsObject(self._bucket, self._call(key, writing=writing, if_absent=if_absent))

    def _writer(self, key: str, like: ObjectInfo | None, parts: int) -> GcsWriter:
        del parts  # it takes them in turn
        return GcsWriter(self._object(key, writing=True), like)
