"""Reads one GCS object, or a part of it, in one request where possible.

The headers of the content say which state of the object it is of, so a condition is checked there.
They may lack the user metadata, and in the answers of an emulator more than that: the description
is then asked for as well, of the same generation; for a whole object, at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from larder.errors import NotFoundError, ObjectError, PreconditionError
from larder.store.base import ObjectInfo
from larder.store.gcs.bucket import GcsBucket
from larder.store.gcs.client import in_thread
from larder.store.gcs.errors import broken
from larder.store.gcs.objects import FIELDS, info_of_headers, info_of_resource
from larder.store.http import Answer
from larder.store.s3_errors import Call
from larder.store.s3_read import S3Body, S3Reader, Span

__all__ = ["describe", "open_object"]


def describe(
    bucket: GcsBucket, full_key: str, call: Call, generation: str | None = None
) -> ObjectInfo:
    """Describe an object, or one generation of it."""
    query = {"fields": FIELDS, "generation": generation}
    response = bucket.send(call, "GET", bucket.path(full_key), query)
    return info_of_resource(response.json(), call.key, call.where)


def open_object(
    bucket: GcsBucket,
    full_key: str,
    call: Call,
    span: Span,
    if_match: str | None,
    *,
    described: bool = False,
) -> S3Reader:
    """Start reading a span of an object; ``described`` includes the user metadata.

    Raises:
        LarderError: See `larder.store.gcs.errors`; ``object.changed``, ``object.truncated``.
    """
    ask = partial(describe, bucket, full_key, call)
    description = (
        in_thread(bucket.client.describing, ask) if described and span.length != 0 else None
    )
    answer = _content(bucket, full_key, call, span) if span.length != 0 else None
    if answer is None:
        info = _checked(ask(), call, span, if_match)
        return S3Reader(S3Body(info, iter(()), lambda: None), span, call.where)
    try:
        info = _info(answer.headers, call, ask, description)
        _checked(info, call, span, if_match)
    except BaseException:
        answer.close()
        raise
    return S3Reader(S3Body(info, _pieces(answer, call), answer.close), span, call.where)


def _content(bucket: GcsBucket, full_key: str, call: Call, span: Span) -> Answer | None:
    """The answer with the content; None if the object ends before the span begins."""
    headers = {"Accept-Encoding": "gzip"}  # or GCS unpacks objects whose content encoding is gzip
    if span.length is not None:
        headers["Range"] = f"bytes={span.offset}-{span.offset + span.length - 1}"
    elif span.offset:
        headers["Range"] = f"bytes={span.offset}-"
    path = bucket.path(full_key)
    answer = bucket.begin(call, "GET", path, {"alt": "media"}, headers, accept=(416,))
    if answer.status == 416:
        answer.close()
        return None
    return answer


def _pieces(answer: Answer, call: Call) -> Iterator[bytes]:
    with broken(call):
        yield from answer


def _info(
    headers: Mapping[str, str],
    call: Call,
    ask: Callable[..., ObjectInfo],
    description: Future[ObjectInfo] | None,
) -> ObjectInfo:
    """The object that the content with these headers is of."""
    info = info_of_headers(headers, call.key)
    if info is not None and description is None:
        return info
    now = description.result() if description else ask()
    generation = headers.get("x-goog-generation")
    if generation in (None, now.generation):
        return now
    if info is not None and info.etag == now.etag:
        return replace(info, metadata=now.metadata)
    try:  # it was written meanwhile
        return ask(generation)
    except NotFoundError:
        message = "it changed while it was opened"
        raise PreconditionError("object.changed", message, where=call.where) from None


def _checked(info: ObjectInfo, call: Call, span: Span, if_match: str | None) -> ObjectInfo:
    if if_match is not None and info.etag != if_match:
        message = "it changed since it was listed"
        raise PreconditionError("object.changed", message, where=call.where)
    if span.offset > info.size_bytes:
        message = f"it has only {info.size_bytes} bytes, none at {span.offset}"
        raise ObjectError("object.truncated", message, where=call.where)
    return info
