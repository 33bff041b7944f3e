"""Reads one S3 object, with any client."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from larder.errors import ObjectError
from larder.store.base import Buffer, ObjectInfo, Reader
from larder.store.calls import Span


def storage_class(named: str | None) -> str:
    """The storage class in S3's words; empty for ``STANDARD``, which HEAD leaves out."""
    return "" if named is None or named == "STANDARD" else sys.intern(named)


@dataclass(frozen=True, slots=True)
class S3Body:
    """An answer being received: the description of the object, the bytes, and how to close it."""

    info: ObjectInfo
    chunks: Iterator[bytes]
    close: Callable[[], None]


class S3Reader(Reader):
    """See `larder.store.base.Reader`. S3 never changes the bytes of an answer in progress.

    Args:
        body: The answer.
        span: The range that was requested.
        where: The object's address, for messages.
    """

    def __init__(self, body: S3Body, span: Span, where: str) -> None:
        self.info = body.info
        self._body = body
        self._left = span.within(body.info.size_bytes)
        self._where = where

    def __iter__(self) -> Iterator[Buffer]:
        """The bytes as they arrive.

        Raises:
            ObjectError: ``object.truncated``: more or fewer bytes than announced.
            RetryableError: The connection broke.
        """
        for data in self._body.chunks:
            self._left -= len(data)
            if self._left < 0:
                raise self._wrong(f"{-self._left} bytes too many")
            yield data
        if self._left:
            raise self._wrong(f"{self._left} bytes are missing")

    def _wrong(self, what: str) -> ObjectError:
        return ObjectError("object.truncated", f"the answer has {what}", where=self._where)

    def close(self) -> None:
        """Close the connection."""
        self._body.close()
