"""The samples of a split, read back from its shards through the indexes of its segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa

from larder.errors import DamageError, ObjectError
from larder.manifest.digest import sha256_hex
from larder.manifest.ranged import RangedManifest
from larder.manifest.schemas import SAMPLES
from larder.manifest.sealed import MAKE_AGAIN
from larder.samples.indexed import IndexedPart, IndexedSample, read_index
from larder.shards.formats import shard_format
from larder.store import object_url
from larder.store.base import Store
from larder.store.own_files import published_file_errors
from larder.versions import layout
from larder.versions.documents import FileFacts, SegmentDocument, VersionDocument
from larder.versions.omitted import Omitted, read_omitted
from larder.versions.publish import read_segment

_COLUMNS = [
    *IndexedSample._fields[:-1],
    *(f"parts.list.element.{name}" for name in IndexedPart._fields),
]
"""The columns that `larder.samples.indexed.read_index` needs."""

_WHOLE_BYTES = 4 << 20
"""An index up to this length is read with one request, and compared with its digest."""


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

    One shard is open at a time. Of an index longer than 4 MiB only what is needed is read, a row
    group at a time. So what is read does not grow with the version, but for the end of the index:
    2 kB for every 65,536 samples of a segment.

    Raises:
        DamageError: A document, an index or a shard is damaged or missing. While iterating:
            ``damage.record``: a part differs from the index.
        ConfigError: While iterating, ``config.invalid_value``: a shard format of a newer Larder.
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
    for batch in _index(store, segment.file("samples")).rows(first_row, count, _COLUMNS):
        gone = omitted.mask(row, batch.num_rows)
        row += batch.num_rows
        yield from read_index([batch.filter(pa.array(~gone))] if gone.any() else [batch])


def _index(store: Store, file: FileFacts) -> RangedManifest:
    where = object_url(store.url, file.path)
    whole: list[bytes] = []

    def fetch(offset: int, length: int) -> bytes:
        return whole[0][offset : offset + length] if whole else ranged(offset, length)

    def ranged(offset: int, length: int) -> bytes:
        try:
            with published_file_errors():
                data = store.get(file.path, offset=offset, length=length)
        except ObjectError as error:
            if error.code not in ("object.truncated", "object.missing"):
                raise
            missing = error.code == "object.missing"
            message = "the file is missing" if missing else "the file is too short"
            raise DamageError("damage.size", message, where=where, hint=MAKE_AGAIN) from None
        if len(data) < length:
            message = f"the file ends before byte {offset + length:,}"
            raise DamageError("damage.size", message, where=where, hint=MAKE_AGAIN)
        return data

    if file.bytes <= _WHOLE_BYTES:
        whole.append(ranged(0, file.bytes))
        if sha256_hex(whole[0]) != file.sha256:
            message = "the bytes do not match the digest"
            raise DamageError("damage.digest", message, where=where, hint=MAKE_AGAIN)
    return RangedManifest(fetch, file.bytes, SAMPLES, where)


def _read(
    store: Store, segment: SegmentDocument, split: str, samples: Iterator[IndexedSample]
) -> Iterator[Sample]:
    format_ = shard_format(*segment.shape.use)
    for name, group in groupby(samples, key=lambda sample: sample.shard):
        with format_.open(store, layout.shard_key(segment.id, split, name)) as shard:
            for sample in group:
                yield Sample(sample.key, sample.label, shard.read(sample))
