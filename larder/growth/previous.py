"""The previous version: its segments, its omitted rows, and the table of its samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from larder.errors import DamageError
from larder.forking import cached_property
from larder.jobs.manifests import read_ref
from larder.manifest.query import Stream, query
from larder.manifest.schemas import SKIPPED, SOURCES, columns, packed_columns, packed_rows
from larder.manifest.sealed import REPAIR, StoredFile
from larder.manifest.spool import Spool
from larder.samples.strata import PUBLISHED
from larder.shards.formats import shard_format
from larder.store import object_url
from larder.store.base import Store
from larder.versions.documents import SegmentDocument, VersionDocument
from larder.versions.identity import faulty_form
from larder.versions.index import BLOCK_ROWS, SegmentIndex, Shard, read_shards
from larder.versions.omitted import Omitted, read_omitted
from larder.versions.publish import existing_segment
from larder.versions.rows import index_rows, open_index

PACKED = packed_columns(
    "segment row shard_number split key label? parts", "ext source etag length? crc32c"
)
"""One row per sample of the previous version; a length is null if its object has another one."""

PLACES = packed_columns(
    "segment row key shard offset length label? parts", "ext offset? length crc32c"
)
"""One row per sample, with its place; ``shard`` is the key of the shard."""

RECORDS = pa.schema([PACKED.field("segment"), *columns(rank="int32"), *SKIPPED])
"""One row per record of a bad sample that the previous version or an earlier version left out.

``segment`` is the number of the segment with the record, or -1 if the version itself has it. Among
records with the same key, the lowest ``rank`` is the latest.
"""

_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PreviousSegment:
    """A segment of the previous version, with all of its shards; arrays have shape (shards,).

    ``live`` counts the unchanged samples of each shard, once all samples are compared.
    """

    document: SegmentDocument
    omitted: Mapping[str, Omitted]
    shards: Sequence[Shard]
    live: _Numbers = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def id(self) -> str:
        return self.document.id

    @property
    def fault(self) -> str:
        """The reason why its shards cannot stay in their form; empty if they can."""
        shape = self.document.shape
        return faulty_form(shape, shard_format(*shape.use).oldest_kept)

    @cached_property
    def rows(self) -> _Numbers:
        """Number of samples, including omitted samples."""
        return np.array([shard.samples for shard in self.shards], np.int64)

    @cached_property
    def first_rows(self) -> _Numbers:
        """Rows of the first samples in the segment's index."""
        return np.array([shard.first_row for shard in self.shards], np.int64)

    @cached_property
    def bytes(self) -> _Numbers:
        return np.array([shard.bytes for shard in self.shards], np.int64)

    @cached_property
    def before(self) -> _Numbers:
        """Number of samples that the previous version has."""
        samples = (shard.samples - self._omitted_of(shard) for shard in self.shards)
        return np.fromiter(samples, np.int64)

    def _omitted_of(self, shard: Shard) -> int:
        if shard.split not in self.omitted:
            return 0
        first_row = shard.first_row - self.document.splits[shard.split].first_row
        return self.omitted[shard.split].within(first_row, shard.samples).count

    @cached_property
    def splits(self) -> pa.Array:
        return pa.array([shard.split for shard in self.shards], pa.string())

    @cached_property
    def paths(self) -> pa.Array:
        return pa.array([shard.files[0].path for shard in self.shards], pa.string())

    def numbers(self, rows: _Numbers) -> pa.Array:
        """Return the number of the shard of each row."""
        return pa.array(np.searchsorted(self.first_rows, rows, side="right") - 1, pa.int32())


class Previous(NamedTuple):
    """The version that this run starts from, and its segments in order."""

    root: Store
    version: VersionDocument
    segments: tuple[PreviousSegment, ...]

    def samples(self) -> Stream:
        return Stream(PACKED, _packed(self))

    def places(self, samples: Spool) -> Stream:
        """Stream the places of samples, given their segments and rows in this order."""
        return Stream(PLACES, _places(self, samples))

    def bad_records(self) -> Stream:
        return Stream(RECORDS, _records(self))


def read_previous(root: Store, version: VersionDocument) -> Previous:
    """Read the contents of a version; DamageError if some are damaged or missing."""
    omitted = read_omitted(root, version)
    segments = tuple(_segment(root, use.id, omitted) for use in version.segments)
    return Previous(root, version, segments)


def _segment(
    root: Store, segment: str, omitted: Mapping[tuple[str, str], Omitted]
) -> PreviousSegment:
    document = existing_segment(root, segment)
    omitted_ranges = {
        split: rows_omitted for (use, split), rows_omitted in omitted.items() if use == segment
    }
    for split, rows_omitted in omitted_ranges.items():
        facts = document.splits.get(split)
        if facts is None or rows_omitted.ranges[-1, 1] > facts.samples:
            message = f"segment {segment} has no such rows in split {split} as the version omits"
            raise DamageError("damage.manifest", message, where=root.url, hint=REPAIR)
    file = document.file("rows")
    shards = read_shards(root, file)
    if (samples := sum(shard.samples for shard in shards)) != document.samples:
        raise _damaged(root, file, samples, document)
    return PreviousSegment(document, omitted_ranges, shards)


_PUBLISHED = """
    SELECT key AS sample, arg_min(number, rank) AS split
    FROM (
        SELECT key, split, 0 AS rank FROM packed
        UNION ALL
        SELECT key, split, rank FROM records
    )
    JOIN splits USING (split)
    GROUP BY key
"""


def published_splits(
    previous: Previous, split_names: Sequence[str], work_dir: Path
) -> Iterator[pa.RecordBatch]:
    """Yield the split of each sample of the previous version, including samples left out as bad.

    ``split_names`` are the current splits in order; samples of other splits are left out.
    """
    splits = pa.record_batch({"split": split_names, "number": range(len(split_names))})
    inputs = {
        "packed": previous.samples(),
        "records": previous.bad_records(),
        "splits": Stream(splits.schema, [splits]),
    }
    return query(_PUBLISHED, inputs, PUBLISHED, work_dir=work_dir)


def _packed(previous: Previous) -> Iterator[pa.RecordBatch]:
    for place, segment in enumerate(previous.segments):
        first_row = 0
        file = segment.document.file("sources")
        for batch in read_ref(previous.root, file, SOURCES):
            stop = first_row + batch.num_rows
            if stop > segment.document.samples:
                raise _damaged(previous.root, file, stop, segment.document)
            rows = np.arange(first_row, stop)
            numbers = segment.numbers(rows)
            split, row = segment.splits.take(numbers), pa.array(rows)
            samples = packed_rows(
                batch, PACKED, segment=place, row=row, shard_number=numbers, split=split
            )
            yield samples.filter(pa.array(~_omitted(segment, first_row, batch.num_rows)))
            first_row = stop
        if first_row != segment.document.samples:
            raise _damaged(previous.root, file, first_row, segment.document)


def _damaged(root: Store, file: StoredFile, samples: int, document: SegmentDocument) -> DamageError:
    message = f"it has {samples:,} samples instead of {document.samples:,}"
    where = object_url(root.url, file.path)
    return DamageError("damage.manifest", message, where=where, hint=REPAIR)


def _places(previous: Previous, chosen: Spool) -> Iterator[pa.RecordBatch]:
    every = sum(segment.document.samples for segment in previous.segments)
    with ExitStack() as stack:

        @cache
        def index_of(place: int) -> SegmentIndex:
            file = previous.segments[place].document.file("rows")
            if 2 * chosen.num_rows > every:
                return stack.enter_context(open_index(previous.root, file))
            return SegmentIndex(previous.root, file, Path())  # only the blocks that are needed

        for batch in chosen.read():
            segments, rows = (batch.column(name).to_numpy() for name in ("segment", "row"))
            for place in np.unique(segments).tolist():
                inside, segment = rows[segments == place], previous.segments[place]
                blocks = np.flatnonzero(np.diff(inside // BLOCK_ROWS)) + 1
                for some in np.split(inside, blocks):
                    samples, row = index_rows(index_of(place), some), pa.array(some)
                    shard = segment.paths.take(segment.numbers(some))
                    yield packed_rows(samples, PLACES, segment=place, row=row, shard=shard)


def _omitted(segment: PreviousSegment, first_row: int, rows: int) -> npt.NDArray[np.bool_]:
    """Return which rows of a batch the version omits."""
    flags = np.zeros(rows, np.bool_)
    for split, omitted in segment.omitted.items():
        facts = segment.document.splits[split]
        start = max(facts.first_row, first_row)
        stop = min(facts.first_row + facts.samples, first_row + rows)
        if start < stop:
            mask = omitted.mask(start - facts.first_row, stop - start)
            flags[start - first_row : stop - first_row] = mask
    return flags


def _records(previous: Previous) -> Iterator[pa.RecordBatch]:
    places = {segment.id: place for place, segment in enumerate(previous.segments)}
    for rank, file in enumerate(reversed(previous.version.files_of("skipped")), 1):
        place = next((at for id_, at in places.items() if id_ in file.path.split("/")), -1)
        for batch in read_ref(previous.root, file, SKIPPED):
            yield packed_rows(batch, RECORDS, segment=place, rank=rank)
