"""A sample's members: its parts, and its label as an additional part, sorted by extension."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import NamedTuple, TypeVar

import google_crc32c
import numpy as np
import numpy.typing as npt

from larder.samples.naming import LABEL_EXT
from larder.shards.model import PlannedSample, label_bytes
from larder.shards.reading.fetch import Body, Contents
from larder.shards.reading.large import stream
from larder.store.base import Readable

Member = tuple[str, str | None, str | None, Body]
"""Extension, key and etag of the source object (None for a label) and content."""

StreamedMember = tuple[str, str | None, str | None, int, Iterable[bytes]]
"""Like `Member`, but with the length in bytes and an iterable that reads the content."""

Column = TypeVar("Column")


class MemberColumns(NamedTuple):
    """The members of some samples in order: the fields of `Member`, in columns."""

    exts: list[str]
    keys: list[str | None]
    etags: list[str | None]
    data: list[bytes]
    checksums: list[int]
    labels: npt.NDArray[np.bool_]
    counts: npt.NDArray[np.int64]


_ext_of = attrgetter("ext")


def members(sample: PlannedSample, bodies: Sequence[Body]) -> list[Member]:
    """Return the members of a sample; ``bodies`` are the contents of its parts, in order."""
    all_members: list[Member] = [
        (part.ext, part.key, part.etag, body)
        for part, body in zip(sample.parts, bodies, strict=True)
    ]
    if sample.label is not None:
        all_members.insert(label_place(sample), (LABEL_EXT, None, None, label_body(sample.label)))
    return all_members


def all_members(samples: Sequence[PlannedSample], contents: Contents) -> MemberColumns:
    labels = [sample.label for sample in samples]
    labelled = np.array([label is not None for label in labels], np.bool_)
    counts = np.array([len(sample.parts) for sample in samples], np.int64)
    parts = list(chain.from_iterable([sample.parts for sample in samples]))
    exts, keys, _, etags = zip(*parts, strict=True) if parts else ((),) * 4
    # Parts are sorted, so a label comes after the parts with smaller extensions.
    smaller = np.concatenate(([0], np.cumsum([ext < LABEL_EXT for ext in exts])))
    stops = np.cumsum(counts)
    places = (stops - counts + smaller[stops] - smaller[stops - counts])[labelled]
    bodies = [label_body(label) for label in labels if label is not None]
    numbers = np.arange(len(parts) + len(bodies))
    order = np.insert(numbers[: len(parts)], places, numbers[len(parts) :])
    in_order = order.tolist()

    def together(of_parts: Sequence[Column], of_labels: Iterable[Column]) -> list[Column]:
        both = [*of_parts, *of_labels]
        return [both[number] for number in in_order]

    nothing = [None] * len(bodies)
    return MemberColumns(
        together(exts, [LABEL_EXT] * len(bodies)),
        together(keys, nothing),
        together(etags, nothing),
        together(contents.data, [body.data for body in bodies]),
        together(contents.checksums, [body.crc32c for body in bodies]),
        order >= len(parts),
        counts + labelled,
    )


def streamed_members(sample: PlannedSample, source: Readable) -> list[StreamedMember]:
    """Return the members of a sample; iterating over a content reads it."""
    all_members: list[StreamedMember] = [
        (part.ext, part.key, part.etag, part.size_bytes, stream(source, part))
        for part in sample.parts
    ]
    if sample.label is not None:
        data = label_body(sample.label).data
        all_members.insert(label_place(sample), (LABEL_EXT, None, None, len(data), (data,)))
    return all_members


def label_place(sample: PlannedSample) -> int:
    """Return the number of parts that come before a sample's label."""
    parts = sample.parts
    if len(parts) == 1:  # most samples
        return int(parts[0].ext < LABEL_EXT)
    return bisect_left(parts, LABEL_EXT, key=_ext_of)


@lru_cache(4096)
def label_body(label: int) -> Body:
    data = label_bytes(label)
    return Body(data, google_crc32c.value(data))
