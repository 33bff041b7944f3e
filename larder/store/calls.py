"""Calls, spans of objects, answers and errors of the stores behind HTTP.

Errors of answers, unless the store's own error code says more::

    answer                                error              code
    404 for a store                       StoreError         store.missing
    404                                   NotFoundError      object.missing
    403 for a store                       StoreError         store.denied
    403                                   ObjectError        object.unreadable
    412                                   PreconditionError  object.exists, object.changed
    416                                   ObjectError        object.truncated
    408, 429, 5xx other than 501 and 507  RetryableError     store.unavailable
    507                                   StoreError         store.full
    any other, when reading an object     ObjectError        object.unreadable
    any other                             StoreError         store.refused

Messages show only the code and the message of an answer, without apparent secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from larder.errors import (
    LarderError,
    NotFoundError,
    ObjectError,
    PreconditionError,
    RetryableError,
    StoreError,
)
from larder.store.base import Buffer, ObjectInfo, Reader, span_bytes
from larder.store.delegate import BytesReader
from larder.store.etags import are_equal, changed, too_short
from larder.store.http import Answer, BrokenError
from larder.store.keys import object_url
from larder.units import format_count

_REFUSED_SECONDS = 2.0
"""Time for which a server that has never answered may refuse connections while it starts."""

_BUSY = (408, 429)
_SECRETS = re.compile(
    r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\bya29\.[\w.-]+|(?<=upload_id=)[\w-]+|(?<=Bearer )[\w.-]+"
)


class Call(NamedTuple):
    """A request: the store, the keys in store and bucket, if any, and whether it writes."""

    store_url: str
    key: str = ""
    writing: bool = False
    if_absent: bool = False
    full_key: str = ""

    @property
    def where(self) -> str:
        return object_url(self.store_url, self.key) if self.key else self.store_url


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error answer: its status, and the store's code and message."""

    status: int
    code: str = ""
    message: str = ""
    retry_after: str = ""

    def __str__(self) -> str:
        """Return the store's error code and message, without secrets."""
        answer = f"the store answers {self.status} {self.code}".strip()
        detail = _SECRETS.sub("(hidden)", " ".join(self.message.split()))[:300]
        return f"{answer}: {detail}" if detail else answer

    def error(self, call: Call) -> LarderError:
        """Return the error of the table at the top of this module."""
        status = self.status
        if status in _BUSY or (status >= 500 and status not in (501, 507)):
            return self.busy(call)
        if status == 412:
            return conflict(call)
        if status == 404 and call.key:
            return NotFoundError("object.missing", "no such object", where=call.where)
        return no_bucket(call) if status == 404 else self._refused(call)

    def _refused(self, call: Call) -> LarderError:
        status, answer = self.status, str(self)
        if status == 416:
            message = "the object ends before the range begins"
            return ObjectError("object.truncated", message, where=call.where)
        if status == 507:
            return StoreError("store.full", answer, where=call.store_url)
        if status == 403 and not call.key:
            hint = "request permission to list and read the bucket"
            return StoreError("store.denied", answer, where=call.store_url, hint=hint)
        if status == 403 or (call.key and not call.writing):
            return ObjectError("object.unreadable", answer, where=call.where)
        return StoreError("store.refused", answer, where=call.where)

    def busy(self, call: Call) -> RetryableError:
        """Return the error of a busy store, with the pause that the store asks for."""
        error = RetryableError("store.unavailable", str(self), where=call.where)
        if self.retry_after.isdecimal():
            error.after_seconds = float(self.retry_after)
        return error


class RefusedKeysError(StoreError):
    """Refused credentials; newer credentials may be accepted."""


def no_bucket(call: Call) -> StoreError:
    hint = "create it, or fix the URL"
    return StoreError("store.missing", "the bucket does not exist", where=call.store_url, hint=hint)


def undescribed(where: str, fields: Mapping[str, object]) -> StoreError:
    """Return the error of an answer with impossible facts about an object."""
    said = ", ".join(f"{name} {str(text)[:40]}" for name, text in fields.items() if text)
    message = f"the answer does not describe an object: {said}"
    return StoreError("store.refused", message, where=where)


def conflict(call: Call) -> PreconditionError:
    if call.if_absent:
        return PreconditionError("object.exists", "it already exists", where=call.where)
    return changed(call.where)


class ByteRange(NamedTuple):
    """A range of bytes of an object: an offset and a length; without a length, up to the end."""

    offset: int
    length: int | None

    def check(self, answer: Answer, call: Call) -> None:
        """Close and refuse an answer that does not begin where the range does."""
        content = answer.headers.get("content-range", "")
        if self.range and not content.startswith(f"bytes {self.offset}-"):
            answer.close()
            message = "the server does not answer with the range that was requested"
            raise StoreError("store.refused", message, where=call.where)

    @property
    def range(self) -> str:
        """The Range header; empty for a whole object. No header can express an empty span."""
        if self.length is not None:
            return f"bytes={self.offset}-{self.offset + self.length - 1}"
        return f"bytes={self.offset}-" if self.offset else ""


@contextmanager
def connection_errors(call: Call) -> Iterator[None]:
    """Raise a `BrokenError` as an error of a call: temporary, or permanent."""
    try:
        yield
    except BrokenError as error:
        cause, hint = str(error), error.hint
        if error.final:
            raise StoreError("store.refused", cause, where=call.store_url, hint=hint) from error
        failure = RetryableError("store.unavailable", cause, where=call.where, hint=hint)
        if error.refused:
            failure.within_seconds = _REFUSED_SECONDS
        raise failure from error


class AnswerReader(Reader):
    """The requested span of an object, from an answer; empty without an answer.

    The bytes of an answer in progress never change.
    """

    def __init__(
        self, info: ObjectInfo, answer: Answer | None, span: ByteRange, call: Call
    ) -> None:
        self.info = info
        self._answer = answer
        self._offset = span.offset
        self._left = span_bytes(info.size_bytes, span.offset, span.length)
        self._call = call

    def checked(self, if_match: str | None) -> Reader:
        """Return this reader, or a `BytesReader` if the whole span has arrived.

        An answer with another etag, or a span beyond the end, is closed and refused: some servers
        ignore conditions.
        """
        if if_match is not None and not are_equal(self.info.etag, if_match):
            self.close()
            raise conflict(self._call)
        if self._offset > self.info.size_bytes:
            self.close()
            raise too_short(self._call.where, self.info.size_bytes, self._offset)
        body = self._answer.body if self._answer else b""
        if body is None or len(body) != self._left:
            return self
        return BytesReader(self.info, body)

    def __iter__(self) -> Iterator[Buffer]:
        """Yield the bytes as they arrive; raise an error if their number is wrong."""
        with connection_errors(self._call):
            for data in self._answer or ():
                self._left -= len(data)
                if self._left < 0:
                    raise self._wrong(f"has {format_count(-self._left, 'byte')} too many")
                yield data
        if self._left:
            raise self._wrong(f"ends {format_count(self._left, 'byte')} too early")

    def _wrong(self, what: str) -> ObjectError:
        return ObjectError("object.truncated", f"the answer {what}", where=self._call.where)

    def close(self) -> None:
        if self._answer is not None:
            self._answer.close()
