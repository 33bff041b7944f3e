"""Samples of a version in one segment and split, and reading them from shards.

Parts that are ranges of a shard are read without the format's reader, with numpy alone; neighbours
with one request. Other parts, such as all parts in Parquet, need the format's reader and the extra
``prepare``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import itemgetter
from typing import NamedTuple

import google_crc32c
import numpy as np

from larder.disk import open_regular
from larder.errors import DamageError
from larder.forking import cached_property
from larder.manifest.sealed import StoredFile
from larder.readers.numbers import Array
from larder.samples.indexed import IndexedSample, Sample
from larder.samples.naming import LABEL_EXT
from larder.shards.reading.ranges import RangeReader, spans
from larder.store import local_path, object_url
from larder.store.base import Store
from larder.store.interrupt import check_wait
from larder.store.local.files import file_etag
from larder.versions import layout
from larder.versions.documents import SegmentDocument
from larder.versions.index import (
    NONE,
    Mapper,
    SamplePlaces,
    SegmentIndex,
    Shard,
    listed_shards,
)
from larder.versions.omitted import Omitted

SPAN_BYTES = 8 << 20
"""Most bytes of one request, unless a part is larger."""

_EXACT_BYTES = 16 << 10
"""Mean length from which parts of a file are read one by one: a call costs less than a copy."""

Exts = frozenset[str]
"""Extensions of the parts to read."""

ReadAll = Callable[["LiveSamples", str, Sequence[IndexedSample]], Sequence[dict[str, bytes]]]
"""Reads samples of one shard, given its name, with its format's reader."""


class LiveSamples:
    """The samples of one split of a segment, without the version's omitted rows.

    Samples are numbered from 0, in the order of the segment's rows.
    """

    def __init__(
        self, document: SegmentDocument, split: str, omitted: Omitted, index: SegmentIndex
    ) -> None:
        facts = document.splits[split]
        if len(omitted.ranges) and omitted.ranges[-1, 1] > facts.samples:
            message = f"the version omits samples that do not exist: there are {facts.samples}"
            raise DamageError("damage.manifest", message, where=layout.segment_key(document.id))
        self.document = document
        self.index = index
        self.split = split
        self._omitted = omitted
        self._first_row = facts.first_row
        self._rows = facts.samples

    def __len__(self) -> int:
        return self._rows - self._omitted.count

    def measures(
        self, numbers: Array, mapped: Mapper, exts: Exts | None = None
    ) -> tuple[Array, Array]:
        """Return the bytes of samples' parts, and the labels or -1; the numbers ascend; int64."""
        places = self._places(self.row_numbers(numbers), mapped, exts)
        sums = np.bincount(places.owners, places.parts["length"], len(places.rows))
        return sums.astype(np.int64), places.rows["label"].astype(np.int64)

    def shard_samples(self) -> Array:
        """Count the samples of each shard, without shards that have none; int64."""
        counts = [shard.samples for shard in self.listed_shards()]
        return np.array(counts, np.int64)

    def listed_shards(self) -> Iterator[Shard]:
        """Yield the shards with samples that are not omitted, in order."""
        shards = self.index.shards(self.split, self._rows)
        return listed_shards(shards, {(self.document.id, self.split): self._omitted})

    def spread(self, name: str, most: int) -> list[int]:
        """Return the numbers of at most this many samples, spread over a shard, in order."""
        start = 0
        for shard in self.listed_shards():
            if shard.name == name:
                numbers = np.linspace(start, start + shard.samples - 1, most).tolist()
                return sorted(set(map(int, numbers)))
            start += shard.samples
        return []

    def locate(
        self, numbers: Array, unchecked: Array, mapped: Mapper, exts: Exts | None = None
    ) -> LocatedSamples:
        """Look samples up in the index, given their numbers in ascending order.

        ``unchecked`` says for each sample whether to compare its parts with their checksums;
        ``mapped`` calls the function that reads a block of the index, as `map` does.
        """
        rows = self.row_numbers(numbers)
        places = self._places(rows, mapped, exts)
        return LocatedSamples(self, rows, places, unchecked[places.owners])

    def _places(self, rows: Array, mapped: Mapper, exts: Exts | None) -> SamplePlaces:
        places = self.index.places(rows, mapped)
        if exts is None:
            return places
        return places.of([number for number, ext in enumerate(self.index.exts) if ext in exts])

    def shard_key(self, name: str) -> str:
        return layout.shard_key(self.document.id, self.split, name)

    @cached_property
    def shard_files(self) -> Mapping[str, StoredFile]:
        """File for reading samples, by the name of a shard."""
        shards = self.index.shards(self.split, self._rows)
        return {shard.name: shard.files[0] for shard in shards}

    def row_numbers(self, numbers: Array) -> Array:
        return self._first_row + self._omitted.rows_of(numbers)


class PartRange(NamedTuple):
    """Part that is a range of a shard; ``number`` is its place among all located parts."""

    shard: int
    offset: int
    length: int
    number: int


class Span(NamedTuple):
    """Ranges of a shard, read with one request, or each by itself from one opened file."""

    samples: LocatedSamples
    shard: str
    ranges: Sequence[PartRange]
    is_exact: bool

    @property
    def stop(self) -> int:
        return self.ranges[-1].offset + self.ranges[-1].length

    def read(self, store: Store, key: str) -> str:
        """Read the parts from the shard or a copy; return the etag."""
        samples = self.samples
        if self.is_exact:
            with suppress(OSError):  # the reader below finds it again, and names it
                if etag := self._read_file(store, key):
                    return etag
        with RangeReader(store, key, self.stop) as reader:
            for part in self.ranges:
                data = reader.read_range(part.offset, part.length) if part.length else b""
                samples.put(part.number, data, reader.url)
            return reader.etag

    def _read_file(self, store: Store, key: str) -> str:
        """Read each part of a file by itself; return the etag, or "" if the file ends too early."""
        url, path = object_url(store.url, key), local_path(store, key)
        with open(path, "rb", 0, opener=open_regular) as file:
            status = os.fstat(file.fileno())
            if self.stop > status.st_size:  # a length in the index may be more than memory has
                return ""
            for _, offset, length, number in self.ranges:
                check_wait()
                data = os.pread(file.fileno(), length, offset)
                if len(data) < length:
                    return ""
                self.samples.put(number, data, url)
            return file_etag(status)


@dataclass(eq=False)
class LocatedSamples:
    """Samples with their places in shards, and the contents of their parts.

    ``contents`` has an item for each part; ``unchecked`` says whether to compare its checksum.
    """

    live: LiveSamples
    rows: Array
    places: SamplePlaces
    unchecked: Array
    contents: list[bytes] = field(init=False)

    def __post_init__(self) -> None:
        parts = self.places.parts
        self.contents = [b""] * len(parts)
        self._crc32c = parts["crc32c"].tolist()
        self._in_ranges = self._of_ranges()

    def spans(self, threads: int = 0) -> Iterator[Span]:
        """Yield the spans to read for samples whose parts are ranges of their shards.

        ``threads`` is the number of threads that read files; 0 if the shards may be in a bucket.
        """
        parts = self.places.parts
        owners = self.places.owners
        numbers = np.flatnonzero((parts["offset"] != NONE) & self._in_ranges[owners])
        shards = self.places.rows["shard"][owners[numbers]]
        order = np.lexsort((parts["length"][numbers], parts["offset"][numbers], shards))
        numbers = numbers[order]
        places = parts["offset"][numbers], parts["length"][numbers]
        stops = places[0] + places[1]
        inside = (places[0][1:] < stops[:-1]) & (shards[order][1:] == shards[order][:-1])
        if inside.any():  # else reads could be longer than the shard
            name = self.live.index.names[shards[order][1:][inside][0]]
            where = self.live.shard_key(name)
            raise DamageError("damage.manifest", "the index has a part in another", where=where)
        ranges = map(PartRange, *(each.tolist() for each in (shards[order], *places, numbers)))
        size_bytes = int(places[1].sum())
        is_exact = threads > 0 and size_bytes >= _EXACT_BYTES * len(numbers)
        most = -(-len(numbers) // max(1, threads, size_bytes // SPAN_BYTES))
        for shard, group in groupby(ranges, key=itemgetter(0)):
            exact = iter(lambda: list(islice(group, most)), [])  # noqa: B023
            for span in exact if is_exact else spans(group, SPAN_BYTES):
                yield Span(self, self.live.index.names[shard], span, is_exact)

    def put(self, number: int, data: bytes, url: str) -> None:
        """Take the content of a part; raise ``damage.record`` if its checksum differs."""
        if self.unchecked[number] and google_crc32c.value(data) != self._crc32c[number]:
            sample = int(np.searchsorted(np.cumsum(self.places.part_counts), number, "right"))
            (key,) = self.live.index.keys(self.rows[sample : sample + 1])
            ext = self.live.index.exts[self.places.parts["ext"][number]]
            message = "its CRC-32C differs from the index"
            raise DamageError("damage.record", message, where=f"{url}: {key}.{ext}")
        self.contents[number] = data

    def finish(self, read_all: ReadAll) -> Iterator[Sample]:
        """Yield the samples in order, after all spans were read; ``read_all`` reads the others."""
        index = self.live.index
        exts = [index.exts[ext] for ext in self.places.parts["ext"].tolist()]
        stops = np.cumsum(self.places.part_counts).tolist()
        labels = [None if label == NONE else label for label in self.places.rows["label"].tolist()]
        offsets = self.places.parts["offset"].tolist()
        others = self._others(read_all)
        start = 0
        keys = index.keys(self.rows)
        for key, label, stop, in_ranges in zip(
            keys, labels, stops, self._in_ranges.tolist(), strict=True
        ):
            if in_ranges:
                parts = dict(zip(exts[start:stop], self.contents[start:stop], strict=True))
                if NONE in offsets[start:stop]:  # label in another form: use the index's
                    parts[LABEL_EXT] = str(label).encode()
            else:
                parts = next(others)
            yield Sample(key, label, parts)
            start = stop

    def _others(self, read_all: ReadAll) -> Iterator[dict[str, bytes]]:
        """Yield the parts of the samples that only the format's reader can read, in order."""
        samples = self.live.index.samples(self.rows[~self._in_ranges])
        for shard, group in groupby(samples, key=lambda sample: sample.shard):
            yield from read_all(self.live, shard, list(group))

    def _of_ranges(self) -> Array:
        """Whether each sample's parts, except a label, are all ranges of the shard."""
        rows, parts, owners = self.places.rows, self.places.parts, self.places.owners
        exts = self.live.index.exts
        label_ext = exts.index(LABEL_EXT) if LABEL_EXT in exts else NONE
        is_label = (parts["ext"] == label_ext) & (rows["label"][owners] != NONE)
        others = owners[(parts["offset"] == NONE) & ~is_label]
        in_ranges = np.ones(len(rows), np.bool_)
        in_ranges[others] = False
        return in_ranges
