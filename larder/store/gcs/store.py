"""The objects of a bucket as a store.

No call is repeated here, except within streamed writing and within a copy of several requests.

An etag is made from the content (`larder.store.gcs.answers`). For a conditional write, the object
is described, its etag compared, and its generation sent as the condition. So two states with the
same bytes count as the same.

The headers of the content name the state of the object, so a read condition is checked there. They
may lack the user metadata, and an emulator's headers lack more: then the same generation is also
described. For a whole object, the description is requested at the same time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from larder.config.urls import DEFAULT_ACCESS, Access
from larder.errors import NotFoundError, ObjectError, StoreError
from larder.store.base import Buffer, ObjectInfo, Readable, Reader, WriteOptions
from larder.store.buckets import BucketStore, list_pages
from larder.store.calls import AnswerReader, ByteRange, Call, conflict
from larder.store.etags import changed
from larder.store.gcs.answers import FIELDS, info_of_headers, info_of_resource
from larder.store.gcs.bucket import GcsBucket, GcsObject, Request, import_gcsfs
from larder.store.gcs.write import GcsWriter, put_object, rewrite
from larder.store.http import Answer
from larder.store.interrupt import in_thread
from larder.store.keys import object_url

if TYPE_CHECKING:
    from typing import Unpack

_PAGE_KEYS = 1000  # the most that GCS returns


def describe(source: GcsObject, generation: str | None = None) -> ObjectInfo:
    response = source.send("GET", {"fields": FIELDS, "generation": generation})
    return info_of_resource(response.json(), source.call.key, source.call.where)


def open_object(
    source: GcsObject, span: ByteRange, if_match: str | None, *, described: bool = False
) -> Reader:
    """Start reading; with ``described``, include the user metadata."""
    threads = source.bucket.account.describing
    description = in_thread(threads, partial(describe, source)) if described else None
    answer = _content(source, span) if span.length != 0 else None
    try:
        info = _info(source, answer.headers, description) if answer else describe(source)
    except BaseException:
        if answer:
            answer.close()
        raise
    return AnswerReader(info, answer, span, source.call).checked(if_match)


def _content(source: GcsObject, span: ByteRange) -> Answer | None:
    """Return None if the object ends before the span begins."""
    answer = source.bucket.begin(_media(source, span.range), source.call)
    if answer.status == 416:
        answer.close()
        return None
    span.check(answer, source.call)
    return answer


def _media(source: GcsObject, span: str = "") -> Request:
    headers = {"Accept-Encoding": "gzip"}  # otherwise GCS unpacks objects encoded with gzip
    if span:
        headers["Range"] = span
    return Request("GET", source.path, {"alt": "media"}, headers, accept=(416,))


def _info(
    source: GcsObject, headers: Mapping[str, str], description: Future[ObjectInfo] | None
) -> ObjectInfo:
    """Return the description of the object whose content has these headers."""
    info = info_of_headers(headers, source.call.key)
    if info is not None and description is None:
        return info
    current = description.result() if description else describe(source)
    generation = headers.get("x-goog-generation")
    if generation in (None, current.generation):
        return current
    if info is not None and info.etag == current.etag:
        return info._replace(metadata=current.metadata, headers=current.headers)
    try:  # the object was replaced since
        return describe(source, generation)
    except NotFoundError:
        raise changed(source.call.where) from None


class GcsStore(BucketStore):
    """The objects of a bucket whose keys begin with a prefix; needs gcsfs
    (``config.missing_package``).
    """

    def __init__(self, bucket: str, prefix: str = "", access: Access = DEFAULT_ACCESS) -> None:
        import_gcsfs()
        super().__init__("gs", bucket, prefix, access)
        self._bucket = GcsBucket(bucket, self._url, access, self._policy)

    def region(self) -> str:
        """Request the bucket's location; unknown without the permission ``storage.buckets.get``."""
        path = self._bucket.path().removesuffix("/o")
        try:
            request = Request("GET", path, {"fields": "location"})
            location = self._bucket.send(request, Call(self._url)).json().get("location")
            return str(location or "")
        except (ObjectError, StoreError):
            return ""

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        """Omit the object that some tools create for the folder itself."""
        query = {
            "prefix": self._prefix + prefix,
            "startOffset": self._prefix + start_after or None,
            "maxResults": str(_PAGE_KEYS),
            "fields": f"nextPageToken,items({FIELDS})",
        }

        def read(token: str) -> tuple[list[ObjectInfo], str]:
            request = Request("GET", self._bucket.path(), {**query, "pageToken": token or None})
            answer = self._bucket.send(request, Call(self._url)).json()
            try:
                items = [
                    (item["name"][len(self._prefix) :], item) for item in answer.get("items") or []
                ]
                objects = [
                    info_of_resource(item, key, object_url(self._url, key))
                    for key, item in items
                    if key > start_after  # startOffset includes the key itself
                ]
            except (LookupError, TypeError) as error:
                message = "the answer to a listing cannot be parsed"
                raise StoreError("store.refused", message, where=self._url) from error
            return objects, answer.get("nextPageToken") or ""

        return list_pages(read, start_after, self._url)

    def head(self, key: str) -> ObjectInfo:
        return describe(self._object(key))

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        span, whole = ByteRange(offset, length), offset == 0 and length is None
        return open_object(self._object(key), span, if_match, described=whole)

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        with open_object(self._object(key), ByteRange(offset, length), if_match) as reader:
            return b"".join(reader)

    def _answers(self, calls: Iterable[tuple[Call, str]], ahead: int) -> Generator[Answer]:
        return self._bucket.get_each(
            (_media(GcsObject(self._bucket, call)) for call, _ in calls), ahead
        )

    def _etag(self, answer: Answer, call: Call) -> str:
        info = info_of_headers(answer.headers, call.key)
        return info.etag if info else ""

    def put(self, key: str, data: Buffer, **options: Unpack[WriteOptions]) -> ObjectInfo:
        if_absent, etag = options.get("if_absent", False), options.get("if_match")
        target = self._object(key, writing=True, if_absent=if_absent)
        generation = "0" if if_absent else None
        if etag is not None:
            try:
                generation = self._generation(key, etag)
            except NotFoundError:
                raise conflict(target.call) from None
        like, md5 = options.get("like"), options.get("md5")
        return put_object(target, data, like=like, md5=md5, generation=generation)

    def _generation(self, key: str, etag: str) -> str | None:
        """Return the generation of the object; ``object.changed`` if it has another etag."""
        info = self.head(key)
        if info.etag != etag:
            raise conflict(self._call(key))
        return info.generation

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        with suppress(NotFoundError):
            generation = None if if_match is None else self._generation(key, if_match)
            self._object(key).send("DELETE", {"ifGenerationMatch": generation})

    def copy_from(self, source: Readable, info: ObjectInfo, key: str) -> ObjectInfo | None:
        """Rewrite an object: within a location and storage class, in no time."""
        place = self._same_server(source)
        target = self._object(key, writing=True)
        return rewrite(source, place, info, target) if place else None

    def _object(self, key: str, *, writing: bool = False, if_absent: bool = False) -> GcsObject:
        return GcsObject(self._bucket, self._call(key, writing=writing, if_absent=if_absent))

    def _writer(self, key: str, like: ObjectInfo | None, parts: int) -> GcsWriter:
        del parts  # parts are sent in turn
        return GcsWriter(self._object(key, writing=True), like)
