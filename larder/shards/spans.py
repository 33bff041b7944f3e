"""Divides ranges of one object into spans, each of which is read with one request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

SPAN_BYTES = 1 << 20
"""At most as much is read with one request, unless a single range is larger."""

_GAP_BYTES = 64 << 10
"""A gap up to this long is read and discarded; after a longer one there is another request."""


class _Range(Protocol):
    """A range of an object, bytes."""

    @property
    def offset(self) -> int:
        """Where it begins."""

    @property
    def length(self) -> int:
        """Its length."""


Range = TypeVar("Range", bound=_Range)


def spans(ranges: Iterable[Range]) -> Iterator[list[Range]]:
    """Divide ranges, sorted by ``offset``, into those that one request returns."""
    span: list[Range] = []
    for each in ranges:
        if span:
            far = each.offset - _stop(span[-1]) > _GAP_BYTES
            if far or _stop(each) - span[0].offset > SPAN_BYTES:
                yield span
                span = []
        span.append(each)
    if span:
        yield span


def _stop(each: _Range) -> int:
    return each.offset + each.length
