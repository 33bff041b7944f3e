"""A sample's members: its parts, and its label as an additional part, sorted by extension."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import attrgetter

import google_crc32c

from larder.samples.grouping import LABEL_EXT
from larder.shards.fetch import Body, stream
from larder.shards.model import Sample, label_bytes
from larder.store.base import Readable

__all__ = [
    "Member",
    "StreamedMember",
    "label_body",
    "label_place",
    "members",
    "streamed_members",
]

Member = tuple[str, str | None, str | None, Body]
"""Extension, key and etag of the source object (None for a label) and content."""

StreamedMember = tuple[str, str | None, str | None, int, Iterable[bytes]]
"""Like `Member`, but with the length in bytes and an iterable that reads the content."""

_ext_of = attrgetter("ext")


def members(sample: Sample, bodies: Sequence[Body]) -> list[Member]:
    """The members of a sample; ``bodies`` are the contents of its parts, in the same order."""
    found: list[Member] = [
        (part.ext, part.key, part.etag, body)
        for part, body in zip(sample.parts, bodies, strict=True)
    ]
    if sample.label is not None:
        found.insert(label_place(sample), (LABEL_EXT, None, None, label_body(sample.label)))
    return found


def streamed_members(sample: Sample, source: Readable) -> list[StreamedMember]:
    """The members of a sample; nothing is read before their contents are iterated over."""
    found: list[StreamedMember] = [
        (part.ext, part.key, part.etag, part.size_bytes, stream(source, part))
        for part in sample.parts
    ]
    if sample.label is not None:
        data = label_body(sample.label).data
        found.insert(label_place(sample), (LABEL_EXT, None, None, len(data), (data,)))
    return found


def label_place(sample: Sample) -> int:
    """Before which of its parts a sample's label comes."""
    parts = sample.parts
    if len(parts) == 1:  # most samples
        return int(parts[0].ext < LABEL_EXT)
    return bisect_left(parts, LABEL_EXT, key=_ext_of)


@lru_cache(4096)
def label_body(label: int) -> Body:
    """The content of a label's part."""
    data = label_bytes(label)
    return Body(data, google_crc32c.value(data))
