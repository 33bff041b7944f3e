"""What the stores behind HTTP have in common: calls, spans of objects, and broken connections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from larder.errors import ObjectError, RetryableError, StoreError
from larder.store.base import Buffer, ObjectInfo, Reader
from larder.store.http import Answer, BrokenError
from larder.store.keys import object_url

_REFUSED_SECONDS = 2.0
"""For how long a server that has never answered may refuse connections: it may be starting."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request: the store, the key (if any), and whether it writes."""

    store_url: str
    key: str = ""
    writing: bool = False
    if_absent: bool = False

    @property
    def where(self) -> str:
        """The address of the object, or of the store."""
        return object_url(self.store_url, self.key) if self.key else self.store_url


@dataclass(frozen=True, slots=True)
class Span:
    """A range of bytes of an object: an offset, and a length or everything that follows."""

    offset: int
    length: int | None

    def within(self, size_bytes: int) -> int:
        """The length of the range in an object of this size."""
        rest = max(0, size_bytes - self.offset)
        return rest if self.length is None else min(self.length, rest)

    def begins(self, headers: Mapping[str, str]) -> bool:
        """Whether an answer begins where the range does: a server may ignore or mistake it."""
        content = headers.get("content-range", "")
        return not self.range or content.startswith(f"bytes {self.offset}-")

    @property
    def range(self) -> str:
        """The Range header; empty for a whole object. No header can say an empty span."""
        if self.length is not None:
            return f"bytes={self.offset}-{self.offset + self.length - 1}"
        return f"bytes={self.offset}-" if self.offset else ""


@contextmanager
def connection_errors(call: Call) -> Iterator[None]:
    """Raise what a broken connection means for a call.

    Raises:
        StoreError: ``store.refused``: it will be the same next time.
        RetryableError: ``store.unavailable``: anything else.
    """
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
    """See `larder.store.base.Reader`. The bytes of an answer in progress never change.

    Args:
        info: The object that the answer describes.
        answer: With the bytes; None if there are none.
        span: The range that was requested.
        call: For messages.
    """

    def __init__(self, info: ObjectInfo, answer: Answer | None, span: Span, call: Call) -> None:
        self.info = info
        self._answer = answer
        self._left = span.within(info.size_bytes)
        self._call = call

    def __iter__(self) -> Iterator[Buffer]:
        """The bytes as they arrive.

        Raises:
            ObjectError: ``object.truncated``: more or fewer bytes than announced.
            RetryableError: The connection broke.
        """
        with connection_errors(self._call):
            for data in self._answer or ():
                self._left -= len(data)
                if self._left < 0:
                    raise self._wrong(f"{-self._left} bytes too many")
                yield data
        if self._left:
            raise self._wrong(f"{self._left} bytes are missing")

    def _wrong(self, what: str) -> ObjectError:
        return ObjectError("object.truncated", f"the answer has {what}", where=self._call.where)

    def close(self) -> None:
        """Stop receiving."""
        if self._answer is not None:
            self._answer.close()
