"""The previous version: its segments, its omitted rows, and the table of its samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from larder.config.models.dataset import Dataset
from larder.errors import DamageError
from larder.jobs.manifests import read_ref
from larder.manifest.query import Stream, query
from larder.manifest.schemas import SKIPPED, SOURCES, columns
from larder.manifest.sealed import MAKE_AGAIN
from larder.manifest.spool import Spool
from larder.samples.strata import PUBLISHED
from larder.shards.formats import shard_format
from larder.store import object_url
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import SegmentDocument, VersionDocument
from larder.versions.identity import faulty_form, is_first_build
from larder.versions.index import BLOCK_ROWS, SegmentIndex, Shard, read_shards
from larder.versions.omitted import Omitted, read_omitted
from larder.versions.publish import read_segment
from larder.versions.rows import INDEXED, index_rows, open_index

PACKED = pa.schema(
    [*columns(segment="int32", row="int64", shard="int32", split="string"), *SOURCES]
)
"""One row per sample of the previous version.

``segment`` is the number of the segment, ``row`` the row in its index, and ``shard`` the number of
the shard in the segment.
"""

PLACES = pa.schema([*columns(segment="int32", row="int64", split="string"), *INDEXED])
"""One row per sample, as in `PACKED`, with its place; ``shard`` is the name of the shard."""

RECORDS = pa.schema(
    [
        *columns(segment="int32", rank="int32"),
        *SKIPPED,
    ]
)
"""One row per record of a bad sample that the previous version or an earlier version left out.

``segment`` is the number of the segment with the record, or -1 if the version itself has it. Among
records with the same key, the lowest ``rank`` is the latest.
"""

_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PreviousSegment:
    """A segment of the previous version; arrays have shape (shards,).

    ``shards`` are all of its shards. ``first_rows`` are the rows of their first samples in the
    segment's index. ``rows`` counts the samples of each shard, with omitted samples. ``bytes`` are
    the sizes of the shards' files.
    """

    document: SegmentDocument
    omitted: Mapping[str, Omitted]
    shards: Sequence[Shard]
    first_rows: _Numbers
    rows: _Numbers
    bytes: _Numbers

    @property
    def id(self) -> str:
        return self.document.id

    @property
    def fault(self) -> str:
        """The reason why its shards cannot stay in their form; empty if they can."""
        shape = self.document.shape
        return faulty_form(shape, shard_format(*shape.use).oldest_kept)

    @property
    def samples(self) -> int:
        """Number of samples, including omitted samples."""
        return sum(split.samples for split in self.document.splits.values())

    def live_rows(self) -> _Numbers:
        """Return the number of samples of each shard that the version has; shape (shards,)."""
        counts = self.rows.copy()
        for split, omitted in self.omitted.items():
            first = self.document.splits[split].first_row
            for start, stop in (omitted.ranges + first).tolist():
                shard = int(np.searchsorted(self.first_rows, start, side="right")) - 1
                while shard < len(self.rows) and self.first_rows[shard] < stop:
                    low = max(start, int(self.first_rows[shard]))
                    high = min(stop, int(self.first_rows[shard] + self.rows[shard]))
                    counts[shard] -= high - low
                    shard += 1
        return counts

    def splits(self, rows: _Numbers) -> pa.Array:
        """Return the names of the splits of rows."""
        items = self.document.splits.items()
        in_order = sorted(items, key=lambda item: (item[1].first_row, item[1].samples))
        ends = [facts.first_row + facts.samples for _, facts in in_order]
        names = pa.array([name for name, _ in in_order], pa.string())
        numbers = np.searchsorted(ends, rows, side="right")
        return names.take(pa.array(np.minimum(numbers, len(in_order) - 1)))


@dataclass(frozen=True, slots=True)
class Previous:
    """The version that this run starts from, and its segments in order."""

    root: Store
    version: VersionDocument
    segments: tuple[PreviousSegment, ...]

    def samples(self) -> Stream:
        """Stream its samples, rows of `PACKED`."""
        return Stream(PACKED, _packed(self))

    def places(self, samples: Spool) -> Stream:
        """Stream the places of samples, rows of `PLACES`, given their segments and rows in this
        order.
        """
        return Stream(PLACES, _places(self, samples))

    def bad_records(self) -> Stream:
        """Stream the records of samples that were left out as bad, rows of `RECORDS`."""
        return Stream(RECORDS, _records(self))


def read_previous(root: Store, version: VersionDocument) -> Previous:
    """Read the contents of a version; DamageError if some are damaged or missing."""
    omitted = read_omitted(root, version)
    return Previous(
        root, version, tuple(_segment(root, use.id, omitted) for use in version.segments)
    )


def _segment(
    root: Store, segment: str, omitted: Mapping[tuple[str, str], Omitted]
) -> PreviousSegment:
    document = read_segment(root, segment)
    if document is None:
        where = object_url(root.url, layout.segment_key(segment))
        raise DamageError("damage.size", "the file is missing", where=where, hint=MAKE_AGAIN)
    shards = read_shards(root, document.file("rows"))
    rows = np.array([shard.samples for shard in shards], np.int64)
    omitted_ranges = {
        split: rows_omitted for (use, split), rows_omitted in omitted.items() if use == segment
    }
    for split, rows_omitted in omitted_ranges.items():
        facts = document.splits.get(split)
        if facts is None or rows_omitted.ranges[-1, 1] > facts.samples:
            message = f"segment {segment} has no such rows in split {split} as the version omits"
            raise DamageError("damage.manifest", message, where=root.url, hint=MAKE_AGAIN)
    return PreviousSegment(
        document=document,
        omitted=omitted_ranges,
        shards=shards,
        first_rows=np.cumsum(rows) - rows,
        rows=rows,
        bytes=np.array([shard.bytes for shard in shards], np.int64),
    )


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

    ``split_names`` are the current splits in order; samples of other splits are left out. Yields
    rows of `larder.samples.strata.PUBLISHED`, each sample once.
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
            rows = np.arange(first_row, first_row + batch.num_rows)
            shards = np.searchsorted(segment.first_rows, rows, side="right") - 1
            values = {
                "segment": pa.array(np.full(len(rows), place, np.int32)),
                "row": pa.array(rows),
                "shard": pa.array(shards, pa.int32()),
                "split": segment.splits(rows),
                **{name: batch.column(name) for name in SOURCES.names},
            }
            arrays = [values[name] for name in PACKED.names]
            samples = pa.RecordBatch.from_arrays(arrays, schema=PACKED)
            yield samples.filter(pa.array(~_omitted(segment, first_row, batch.num_rows)))
            first_row += batch.num_rows
        if first_row != segment.samples:
            message = f"it has {first_row:,} samples instead of {segment.samples:,}"
            where = object_url(previous.root.url, file.path)
            raise DamageError("damage.manifest", message, where=where, hint=MAKE_AGAIN)


def _places(previous: Previous, samples: Spool) -> Iterator[pa.RecordBatch]:
    every = sum(segment.samples for segment in previous.segments)
    with ExitStack() as stack:

        @cache
        def index_of(place: int) -> SegmentIndex:
            file = previous.segments[place].document.file("rows")
            if 2 * samples.num_rows > every:
                return stack.enter_context(open_index(previous.root, file))
            return SegmentIndex(previous.root, file, Path())  # only the blocks that are needed

        for batch in samples.read():
            segments, rows = (batch.column(name).to_numpy() for name in ("segment", "row"))
            for place in np.unique(segments).tolist():
                inside = rows[segments == place]
                blocks = np.flatnonzero(np.diff(inside // BLOCK_ROWS)) + 1
                for some in np.split(inside, blocks):
                    places = index_rows(index_of(place), some)
                    numbers = pa.array(np.full(len(some), place, np.int32))
                    splits = previous.segments[place].splits(some)
                    arrays = [numbers, pa.array(some), splits, *places.columns]
                    yield pa.RecordBatch.from_arrays(arrays, schema=PLACES)


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
            count = batch.num_rows
            places_and_ranks = (
                pa.array(np.full(count, each), pa.int32()) for each in (place, rank)
            )
            yield pa.RecordBatch.from_arrays([*places_and_ranks, *batch.columns], schema=RECORDS)


def is_compact(root: Store, version: VersionDocument, dataset: Dataset) -> bool:
    """Return whether a version, by its documents, equals the result of a first build.

    The version has the same inputs. False if documents alone do not tell, as with
    ``shards.count_min``: a plan finds out; see `larder.versions.identity.is_first_build`.
    """
    if len(version.segments) > 1 or dataset.shards.count_min is not None:
        return False
    segment = read_segment(root, version.segments[0].id)
    current = shard_format(dataset.shards.format).version
    return segment is not None and is_first_build(version, segment, version.skipped, {}, current)
