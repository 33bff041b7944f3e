"""Reads one GCS object, or a part of it, in one request where possible.

The headers of the content say which state of the object it is of, so a condition is checked there.
They may lack the user metadata, and in the answers of an emulator more than that: the description
is then asked for as well, of the same generation; for a whole object, at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from larder.errors import NotFoundError, ObjectError, PreconditionError
from larder.store.base import Buffer, ObjectInfo, Reader
from larder.store.gcs_access import GcsAccess, Request, transport_errors
from larder.store.gcs_objects import FIELDS, info_of_headers, info_of_resource
from larder.store.s3_errors import Call
from larder.store.s3_read import Span

if TYPE_CHECKING:
    import aiohttp

__all__ = ["GcsReader", "describe", "open_object", "read_object"]

_GATHER_BYTES = 256 << 10
_AS_STORED = {"Accept-Encoding": "gzip"}
"""Otherwise GCS unpacks objects whose content encoding is gzip."""


class GcsReader(Reader):
    """See `larder.store.base.Reader`. GCS never changes the bytes of an answer in progress.

    Args:
        access: Where the answer is being received.
        response: The answer; None if there are no bytes.
        info: The object.
        span: The range that was requested.
        call: For messages.
    """

    def __init__(
        self,
        access: GcsAccess,
        response: aiohttp.ClientResponse | None,
        info: ObjectInfo,
        span: Span,
        call: Call,
    ) -> None:
        self.info = info
        self._response = response
        self._thread = access.client.thread
        self._left = span.within(info.size_bytes)
        self._call = call

    def __iter__(self) -> Iterator[Buffer]:
        """The bytes as they arrive.

        Raises:
            ObjectError: ``object.truncated``: more or fewer bytes than announced.
            RetryableError: The connection broke.
        """
        while self._response is not None:
            data = self._thread.run(self._some(self._response))
            if not data:
                break
            self._left -= len(data)
            if self._left < 0:
                raise self._wrong(f"{-self._left} bytes too many")
            yield data
        if self._left:
            raise self._wrong(f"{self._left} bytes are missing")

    async def _some(self, response: aiohttp.ClientResponse) -> bytes:
        """The next bytes: many, as every pass from one thread to the other takes time."""
        parts: list[bytes] = []
        size = 0
        with transport_errors(self._call):
            while size < _GATHER_BYTES and (part := await response.content.readany()):
                parts.append(part)
                size += len(part)
        return b"".join(parts)

    def _wrong(self, what: str) -> ObjectError:
        return ObjectError("object.truncated", f"the answer has {what}", where=self._call.where)

    def close(self) -> None:
        """Close the connection, which is used again if everything was read."""
        response, self._response = self._response, None
        if response is not None:
            self._thread.soon(response.release if self._left == 0 else response.close)


def open_object(
    access: GcsAccess, full_key: str, call: Call, span: Span, if_match: str | None
) -> GcsReader:
    """Start reading a span of an object.

    Raises:
        LarderError: See `larder.store.gcs_errors`; ``object.changed``, ``object.truncated``.
    """
    whole = span.offset == 0 and span.length is None
    response, info = access.run(
        lambda files: _open(access, files, full_key, call, span, if_match, described=whole)
    )
    return GcsReader(access, response, info, span, call)


def read_object(
    access: GcsAccess, full_key: str, call: Call, span: Span, if_match: str | None
) -> bytes:
    """The bytes of a span of an object; see `open_object`."""

    async def read(files: Any) -> tuple[bytes, ObjectInfo]:
        response, info = await _open(access, files, full_key, call, span, if_match, described=False)
        if response is None:
            return b"", info
        async with response:
            with transport_errors(call):
                return await response.read(), info

    data, info = access.run(read)
    missing = span.within(info.size_bytes) - len(data)
    if missing:
        said = f"{missing} bytes are missing" if missing > 0 else f"{-missing} bytes too many"
        raise ObjectError("object.truncated", f"the answer has {said}", where=call.where)
    return data


async def describe(
    access: GcsAccess, files: Any, full_key: str, call: Call, generation: str | None = None
) -> ObjectInfo:
    """Describe an object, or one generation of it."""
    query = {"fields": FIELDS, "generation": generation}
    request = Request("GET", access.object_path(full_key), query)
    answer = await access.answer(files, request, call)
    return info_of_resource(answer.json(), call.key, call.where)


async def _open(
    access: GcsAccess,
    files: Any,
    full_key: str,
    call: Call,
    span: Span,
    if_match: str | None,
    *,
    described: bool,
) -> tuple[aiohttp.ClientResponse | None, ObjectInfo]:
    """The answer with the content, and the object; ``described`` includes the user metadata."""
    if span.length == 0:
        return None, _checked(await describe(access, files, full_key, call), call, span, if_match)
    asked = asyncio.ensure_future(describe(access, files, full_key, call)) if described else None
    try:
        response = await _content(access, files, full_key, call, span)
        if response is None:
            info = await describe(access, files, full_key, call)
            return None, _checked(info, call, span, if_match)
        try:
            info = await _info(access, files, full_key, call, response, asked)
            return response, _checked(info, call, span, if_match)
        except BaseException:
            response.close()
            raise
    finally:
        if asked is not None:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)


async def _content(
    access: GcsAccess, files: Any, full_key: str, call: Call, span: Span
) -> aiohttp.ClientResponse | None:
    """The answer with the content; None if the object ends before the span begins."""
    headers = dict(_AS_STORED)
    if span.length is not None:
        headers["Range"] = f"bytes={span.offset}-{span.offset + span.length - 1}"
    elif span.offset:
        headers["Range"] = f"bytes={span.offset}-"
    path = access.object_path(full_key)
    request = Request("GET", path, {"alt": "media"}, headers, accept=(416,))
    response = await access.begin(files, request, call)
    if response.status == 416:
        response.close()
        return None
    return response


async def _info(
    access: GcsAccess,
    files: Any,
    full_key: str,
    call: Call,
    response: aiohttp.ClientResponse,
    asked: asyncio.Future[ObjectInfo] | None,
) -> ObjectInfo:
    """The object that the content is of."""
    here = info_of_headers(response.headers, call.key)
    generation = response.headers.get("x-goog-generation")
    if here is not None and asked is None:
        return here
    described = await asked if asked else await describe(access, files, full_key, call)
    if generation in (None, described.generation):
        return described
    if here is not None and here.etag == described.etag:
        return replace(here, metadata=described.metadata)
    try:  # it was written meanwhile
        return await describe(access, files, full_key, call, generation)
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
