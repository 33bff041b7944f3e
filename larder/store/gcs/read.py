"""Lists a GCS bucket, and reads one object or a part of it: in one request, where possible.

The headers of the content say which state of the object it is of, so a condition is checked there.
They may lack the user metadata, and in the answers of an emulator more than that: the description
is then asked for as well, of the same generation; for a whole object, at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from larder.errors import NotFoundError, PreconditionError, StoreError
from larder.store.base import ObjectInfo
from larder.store.buckets import check_order
from larder.store.calls import AnswerReader, Call, Span
from larder.store.gcs.bucket import GcsBucket, GcsObject, Request
from larder.store.gcs.objects import FIELDS, info_of_headers, info_of_resource
from larder.store.http import Answer
from larder.store.interrupt import in_thread

_PAGE_KEYS = 1000  # the most that GCS returns


def list_pages(bucket: GcsBucket, base: str, prefix: str, after: str) -> Iterator[list[ObjectInfo]]:
    """Yield pages of objects in order; no page is empty.

    Only those whose keys in the bucket begin with ``prefix`` and are after ``after``; the keys of
    the result are what follows ``base``.

    Raises:
        LarderError: See `larder.store.gcs.errors`; ``store.refused``: the server does not list in
            order, or its answer cannot be parsed.
    """
    query: dict[str, str | None] = {
        "prefix": prefix,
        "startOffset": after or None,
        "maxResults": str(_PAGE_KEYS),
        "fields": f"nextPageToken,items({FIELDS})",
    }
    last = ""
    while True:
        call = Call(bucket.store_url)
        answer = bucket.send(Request("GET", bucket.path(), query), call).json()
        try:
            items = [(item["name"], item) for item in answer.get("items") or []]
            last = check_order(last, (name for name, _ in items), bucket.store_url)
        except (LookupError, TypeError) as error:
            message = "the answer to a listing cannot be parsed"
            raise StoreError("store.refused", message, where=bucket.store_url) from error
        page = [
            info_of_resource(item, name[len(base) :], bucket.store_url)
            for name, item in items
            if name > after  # startOffset includes the key itself
        ]
        if page:
            yield page
        query["pageToken"] = answer.get("nextPageToken")
        if not query["pageToken"]:
            return


def describe(source: GcsObject, generation: str | None = None) -> ObjectInfo:
    """Describe an object, or one generation of it."""
    response = source.send("GET", {"fields": FIELDS, "generation": generation})
    return info_of_resource(response.json(), source.call.key, source.call.where)


def open_object(
    source: GcsObject, span: Span, if_match: str | None, *, described: bool = False
) -> AnswerReader:
    """Start reading a span of an object; ``described`` includes the user metadata."""
    threads = source.bucket.account.describing
    description = in_thread(threads, partial(describe, source)) if described else None
    answer = _content(source, span) if span.length != 0 else None
    try:
        info = _info(source, answer.headers, description) if answer else describe(source)
    except BaseException:
        if answer:
            answer.close()
        raise
    return AnswerReader(info, answer, span, source.call).check(span, if_match)


def _content(source: GcsObject, span: Span) -> Answer | None:
    """The answer with the content; None if the object ends before the span begins."""
    headers = {"Accept-Encoding": "gzip"}  # or GCS unpacks objects whose content encoding is gzip
    if span.range:
        headers["Range"] = span.range
    request = Request("GET", source.path, {"alt": "media"}, headers, accept=(416,))
    answer = source.bucket.begin(request, source.call)
    if answer.status == 416:
        answer.close()
        return None
    span.check(answer, source.call)
    return answer


def _info(
    source: GcsObject, headers: Mapping[str, str], description: Future[ObjectInfo] | None
) -> ObjectInfo:
    """The object that the content with these headers is of."""
    info = info_of_headers(headers, source.call.key)
    if info is not None and description is None:
        return info
    now = description.result() if description else describe(source)
    generation = headers.get("x-goog-generation")
    if generation in (None, now.generation):
        return now
    if info is not None and info.etag == now.etag:
        return replace(info, metadata=now.metadata)
    try:  # it was written meanwhile
        return describe(source, generation)
    except NotFoundError:
        message = "it changed while it was opened"
        raise PreconditionError("object.changed", message, where=source.call.where) from None
