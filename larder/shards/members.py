"""A sample's members: its parts, and its label as an additional part, sorted by extension."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from operator import attrgetter, sub
from typing import NamedTuple

import google_crc32c

from larder.samples.naming import LABEL_EXT
from larder.shards.model import PlannedSample, label_bytes
from larder.shards.reading.fetch import Body, Contents
from larder.shards.reading.large import stream
from larder.store.base import Readable

StreamedMember = tuple[str, str | None, str | None, int, Iterable[bytes]]
"""Extension, key and etag of the source object (None for a label), length in bytes, and an iterable
that reads the content."""

_PlannedMember = tuple[str, str | None, int, str | None]
"""Like `larder.shards.model.Part`."""


class MemberColumns(NamedTuple):
    """The planned members of some samples in order: the key and etag of a label are None.

    ``borders`` are the numbers of each sample's first member, and the number of all members.
    """

    exts: Sequence[str]
    keys: Sequence[str | None]
    sizes: Sequence[int]
    etags: Sequence[str | None]
    borders: Sequence[int]

    def counts(self) -> Iterator[int]:
        """Yield the number of each sample's members."""
        return map(sub, self.borders[1:], self.borders)


_ext_of = attrgetter("ext")


def planned_members(samples: Sequence[PlannedSample]) -> MemberColumns:
    of_samples = list(map(_planned_members, samples))
    exts, keys, sizes, etags = zip(*chain.from_iterable(of_samples), strict=True)
    return MemberColumns(exts, keys, sizes, etags, [*accumulate(map(len, of_samples), initial=0)])


def _planned_members(sample: PlannedSample) -> Sequence[_PlannedMember]:
    if sample.label is None:
        return sample.parts
    label: _PlannedMember = (LABEL_EXT, None, len(label_body(sample.label).data), None)
    place = label_place(sample)
    return (*sample.parts[:place], label, *sample.parts[place:])


def with_labels(
    keys: Sequence[str | None], samples: Iterable[PlannedSample], contents: Contents
) -> Contents:
    """Return the contents of all members; ``contents`` are of the parts alone."""
    labels = [label_body(each.label) for each in samples if each.label is not None]
    if not labels:
        return contents
    bodies: Iterator[tuple[bytes, int]] = iter(labels)
    parts = zip(contents.data, contents.checksums, strict=True)
    data, checksums = zip(*[next(bodies if key is None else parts) for key in keys], strict=True)
    return Contents(data, checksums)


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
