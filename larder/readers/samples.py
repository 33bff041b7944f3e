"""The samples of a split, read back from its shards through the columns of its segments.

Parts that are ranges of a shard are read without its format: with numpy alone. Others, as all of
Parquet, take the format's reader and the extra ``prepare``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import compress, groupby
from typing import NamedTuple

from larder.config.shape import FormatUse
from larder.errors import DamageError
from larder.manifest.sealed import MAKE_AGAIN
from larder.packages import missing_package
from larder.samples.indexed import IndexedPart, IndexedSample, SampleReader, check_part
from larder.samples.naming import LABEL_EXT
from larder.shards.formats import shard_format
from larder.shards.reading.ranges import PartReader
from larder.store import object_url
from larder.store.base import Store
from larder.versions import layout
from larder.versions.columns import SegmentColumns
from larder.versions.documents import SegmentDocument, VersionDocument
from larder.versions.omitted import Omitted, read_omitted
from larder.versions.publish import read_segment


class Sample(NamedTuple):
    """A sample.

    Attributes:
        key: Its key.
        label: The number of its class; None without labels.
        parts: The content of each part by extension, with the label as ``cls``.
    """

    key: str
    label: int | None
    parts: Mapping[str, bytes]


def read_samples(
    store: Store, version: VersionDocument, split: str, start: int = 0, stop: int | None = None
) -> Iterator[Sample]:
    """Read samples of a split in the order of the version, without those that it omits.

    One shard is open at a time. Of the index only what is needed is read, a block of 4,096 samples
    at a time. So what is read does not grow with the version, but for the names of shards and 32
    bytes for every block of a segment.

    Raises:
        DamageError: A document, an index or a shard is damaged or missing. While iterating:
            ``damage.record``: a part differs from the index.
        ConfigError: While iterating, ``config.invalid_value``: a shard format of a newer Larder;
            ``config.missing_package``.
    """
    omitted = read_omitted(store, version)
    segments = [_segment(store, use.id) for use in version.segments]
    stop = version.splits[split].samples if stop is None else stop
    return _all(store, segments, omitted, split, range(start, stop))


def _segment(store: Store, segment: str) -> SegmentDocument:
    document = read_segment(store, segment)
    if document is None:
        where = object_url(store.url, layout.segment_key(segment))
        raise DamageError("damage.size", "the file is missing", where=where, hint=MAKE_AGAIN)
    return document


def _all(
    store: Store,
    segments: list[SegmentDocument],
    omitted: Mapping[tuple[str, str], Omitted],
    split: str,
    wanted: range,
) -> Iterator[Sample]:
    first = 0
    for segment in segments:
        if split in segment.splits:
            gone = omitted.get((segment.id, split), Omitted.none())
            live = segment.splits[split].samples - gone.count
            numbers = range(max(wanted.start - first, 0), min(wanted.stop - first, live))
            first += live
            if len(numbers):
                yield from _read(store, segment, split, _live(store, segment, split, gone, numbers))


def _live(
    store: Store, segment: SegmentDocument, split: str, omitted: Omitted, numbers: range
) -> Iterator[IndexedSample]:
    """The samples of a segment with these numbers among those that are not omitted."""
    begin, last = omitted.rows_of([numbers.start, numbers.stop - 1]).tolist()
    row, count = begin, last + 1 - begin
    first_row = segment.splits[split].first_row + begin
    for samples in SegmentColumns(store, segment).samples(first_row, count):
        gone = omitted.mask(row, len(samples))
        row += len(samples)
        yield from compress(samples, ~gone)


def _read(
    store: Store, segment: SegmentDocument, split: str, samples: Iterator[IndexedSample]
) -> Iterator[Sample]:
    for name, group in groupby(samples, key=lambda sample: sample.shard):
        key = layout.shard_key(segment.id, split, name)
        with ExitStack() as stack:
            ranges = stack.enter_context(PartReader(store, key))
            reader: SampleReader | None = None
            for sample in group:
                if _is_ranges(sample):
                    yield Sample(sample.key, sample.label, _parts_and_label(sample, ranges))
                    continue
                if reader is None:
                    reader = stack.enter_context(_open(segment.shape.use, store, key))
                yield Sample(sample.key, sample.label, reader.read(sample))


def _open(use: FormatUse, store: Store, key: str) -> SampleReader:
    try:
        return shard_format(*use).open(store, key)
    except ImportError as error:
        raise missing_package(error) or error from None


def _is_label(part: IndexedPart, sample: IndexedSample) -> bool:
    return part.ext == LABEL_EXT and sample.label is not None


def _is_ranges(sample: IndexedSample) -> bool:
    """Whether all parts but a label are in the bytes of the sample, as they are."""
    start, stop = sample.offset, sample.offset + sample.length
    return all(
        start <= part.offset and part.offset + part.length <= stop
        if part.offset is not None
        else _is_label(part, sample)
        for part in sample.parts
    )


def _parts_and_label(sample: IndexedSample, ranges: PartReader) -> dict[str, bytes]:
    """The parts of a sample in their order; a label in another form is that of the index."""
    contents = ranges.read(sample, [part for part in sample.parts if part.offset is not None])
    for part in sample.parts:
        if part.offset is None and sample.label is not None:
            contents[part.ext] = check_part(part, b"%d" % sample.label, sample, ranges.url)
    return {part.ext: contents[part.ext] for part in sample.parts}
