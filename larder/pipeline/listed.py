"""The shards of a segment that a version lists: those with samples that it does not omit. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from larder.shards.packing import brace_patterns
from larder.versions import layout
from larder.versions.documents import SplitFacts
from larder.versions.identity import ShardIdentity
from larder.versions.omitted import Omitted

_NONE = Omitted.none()
_Omitted = Mapping[tuple[str, str], Omitted]


class _File(NamedTuple):
    """A row of `larder.manifest.schemas.SHARDS`."""

    segment: str
    split: str
    name: str
    bytes: int
    samples: int
    sha256: str


class ListedShard(NamedTuple):
    """A shard with samples that are not omitted; the first file has the shard's name.

    ``samples`` counts those that are not omitted; ``omitted`` are ranges of its rows, counted from
    its first sample.
    """

    segment: str
    split: str
    files: tuple[_File, ...]
    samples: int
    omitted: tuple[tuple[int, int], ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def listed_shards(rows: Iterable[pa.RecordBatch], omitted: _Omitted) -> Iterator[ListedShard]:
    """The listed shards of one or more segments, in order.

    ``rows`` are of `larder.manifest.schemas.SHARDS`, all of a segment; ``omitted`` are the rows
    that the version omits, by segment and split.
    """
    first_rows: Counter[tuple[str, str]] = Counter()
    for shard in _shards(rows):
        place, samples = (shard[0].segment, shard[0].split), shard[0].samples
        first_row = first_rows[place]
        first_rows[place] += samples
        gone = omitted.get(place, _NONE)
        mask = gone.mask(first_row, samples) if gone.count else np.zeros(0, np.bool_)
        live = samples - int(mask.sum())
        if live:
            ranges = Omitted.of_mask(mask).ranges.tolist()
            yield ListedShard(*place, shard, live, tuple((a, b) for a, b in ranges))


def _shards(rows: Iterable[pa.RecordBatch]) -> Iterator[tuple[_File, ...]]:
    files = (
        _File(*row)
        for batch in rows
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    held: list[_File] = []
    for file in files:
        if file.samples and held:  # the first file of the next shard
            yield tuple(held)
            held = []
        held.append(file)
    if held:
        yield tuple(held)


def shard_files(rows: Iterable[pa.RecordBatch], omitted: _Omitted) -> Iterator[ShardIdentity]:
    """What the content digest covers of the listed shards; see `listed_shards`."""
    for shard in listed_shards(rows, omitted):
        for number, file in enumerate(shard.files):
            gone = () if number else shard.omitted
            yield ShardIdentity(file.split, file.name, file.bytes, file.sha256, gone)


def listed_splits(shards: Iterable[ListedShard]) -> dict[str, SplitFacts]:
    """What listed shards of one segment add up to in each split."""
    found: dict[str, SplitFacts] = {}
    for (segment, split), group in groupby(shards, key=lambda shard: shard[:2]):
        samples = size_bytes = omitted = 0
        names = []
        for shard in group:
            names.append(shard.files[0].name)
            samples += shard.samples
            size_bytes += shard.bytes
            omitted += sum(stop - start for start, stop in shard.omitted)
        found[split] = SplitFacts(
            samples=samples,
            shards=len(names),
            bytes=size_bytes,
            patterns=tuple(
                layout.shard_key(segment, split, pattern) for pattern in brace_patterns(names)
            ),
            omitted=omitted,
        )
    return found


def combined(facts: Iterable[SplitFacts]) -> SplitFacts:
    """One split of several segments, in order."""
    total = SplitFacts(0, 0, 0, ())
    for part in facts:
        total = SplitFacts(
            samples=total.samples + part.samples,
            shards=total.shards + part.shards,
            bytes=total.bytes + part.bytes,
            patterns=(*total.patterns, *part.patterns),
            omitted=total.omitted + part.omitted,
        )
    return total
