"""The previous version: its segments, what it omits, and its samples in the order of today."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.models import Dataset
from larder.errors import DamageError
from larder.jobs.manifests import read_ref
from larder.manifest.query import Stream
from larder.manifest.reference import ManifestRef
from larder.manifest.schemas import SAMPLE_ORDER, SAMPLES, SHARDS, SKIPPED
from larder.manifest.sealed import MAKE_AGAIN
from larder.manifest.sort import SortedFile, aligned, sort, sort_to_file, whole_keys
from larder.pipeline.pack import pack
from larder.samples.order import SampleOrder
from larder.samples.parts import NO_SAMPLE
from larder.samples.planner import Planner
from larder.samples.strata import PUBLISHED
from larder.store import object_url
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import SegmentDocument, VersionDocument
from larder.versions.omitted import Omitted, read_omitted
from larder.versions.publish import read_segment

IN_ORDER = ("split", "order", "key")
"""The columns by which samples are ordered."""

PREVIOUS = pa.schema(
    [
        pa.field("split", pa.int16(), nullable=False),
        pa.field("order", pa.uint64(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("segment", pa.int32(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("old_split", pa.string(), nullable=False),
        pa.field("label", pa.int32()),
        pa.field("shard", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("length", pa.int64()),
        pa.field("parts", SAMPLES.field("parts").type, nullable=False),
        pa.field("bad", pa.string()),
    ]
)
"""One row per sample of the previous version, and per sample that it left out as bad.

The split and the order are those that the sample would have now. ``segment`` and ``row`` say where
it is: the number of the segment, and the row of its samples manifest. For a bad sample, ``bad`` is
the reason, and ``segment`` is that of its record, or -1 if its record is of the version. Of rows
with the same key, the one with the lowest ``rank`` counts. ``parts`` does not contain labels; those
of a record that does not count, because images are checked in another way now, have a length of -1.
"""

_SPLITS = pa.schema([SAMPLE_ORDER.field(name) for name in ("split", "key")])
_RANKED = PUBLISHED.append(pa.field("rank", pa.int32(), nullable=False))

_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PreviousSegment:
    """A segment of the previous version; arrays have shape (shards,).

    ``first_rows`` are the rows of the first samples in the segment's samples manifest; ``rows``
    counts the samples of each shard, with those that are omitted; ``bytes`` are of the shard's
    files.
    """

    document: SegmentDocument
    omitted: Mapping[str, Omitted]
    first_rows: _Numbers
    rows: _Numbers
    bytes: _Numbers

    @property
    def id(self) -> str:
        return self.document.id

    @property
    def samples(self) -> int:
        """Number of samples, with those that are omitted."""
        return sum(split.samples for split in self.document.splits.values())

    def omitted_rows(self) -> _Numbers:
        """Number of rows of each shard that the version omits; shape (shards,)."""
        counts = np.zeros(len(self.rows), np.int64)
        for split, omitted in self.omitted.items():
            first = self.document.splits[split].first_row
            for start, stop in (omitted.ranges + first).tolist():
                shard = int(np.searchsorted(self.first_rows, start, side="right")) - 1
                while shard < len(self.rows) and self.first_rows[shard] < stop:
                    low = max(start, int(self.first_rows[shard]))
                    high = min(stop, int(self.first_rows[shard] + self.rows[shard]))
                    counts[shard] += high - low
                    shard += 1
        return counts

    def manifest(self, role: str) -> ManifestRef:
        return ManifestRef.of(self.document.file(role))


@dataclass(frozen=True, slots=True)
class Previous:
    """The version that this run starts from, and its segments in order."""

    version: VersionDocument
    segments: tuple[PreviousSegment, ...]


def read_previous(root: Store, version: VersionDocument) -> Previous:
    """Read what a version is made of; what is damaged or missing is a DamageError."""
    omitted = read_omitted(root, version)
    return Previous(version, tuple(_segment(root, use.id, omitted) for use in version.segments))


def _segment(
    root: Store, segment: str, omitted: Mapping[tuple[str, str], Omitted]
) -> PreviousSegment:
    document = read_segment(root, segment)
    if document is None:
        where = object_url(root.url, layout.segment_key(segment))
        raise DamageError("damage.size", "the file is missing", where=where, hint=MAKE_AGAIN)
    first_rows: list[int] = []
    rows: list[int] = []
    sizes: list[int] = []
    row = 0
    columns = ["samples", "bytes"]
    for batch in read_ref(root, ManifestRef.of(document.file("shards")), SHARDS, columns=columns):
        for samples, size_bytes in zip(*(c.to_pylist() for c in batch.columns), strict=True):
            if samples:
                first_rows.append(row)
                rows.append(samples)
                sizes.append(size_bytes)
                row += samples
            else:  # another file of the same shard
                sizes[-1] += size_bytes
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
        first_rows=np.array(first_rows, np.int64),
        rows=np.array(rows, np.int64),
        bytes=np.array(sizes, np.int64),
    )


def previous_rows(
    root: Store,
    previous: Previous,
    planner: Planner,
    check: str | None,
    path: Path,
    *,
    now: Iterable[pa.RecordBatch] | None = None,
) -> SortedFile:
    """Write the samples of the previous version in the order that they would have now.

    ``check`` is how images are checked: records of bad samples count only if they were checked in
    the same way; None if none counts, because bad samples are not left out. ``now`` are the samples
    that are there now, with their keys and splits, if classes are divided and not all samples keep
    their splits. The file has rows of `PREVIOUS`.
    """
    live = (_live(root, place, previous.segments[place]) for place in range(len(previous.segments)))
    rows = chain(chain.from_iterable(live), _bad(root, previous, check))
    with ExitStack() as stack:
        pairs: Iterator[tuple[pa.RecordBatch, pa.Array]]
        if now is None:
            pairs = ((batch, batch.column("old_split")) for batch in rows)
        else:
            pairs = _divided_anew(rows, now, path.parent, stack)
        placed = (_placed(batch, planner, splits) for batch, splits in pairs)
        return sort_to_file(Stream(PREVIOUS, placed), (*IN_ORDER, "rank"), path)


def _divided_anew(
    rows: Iterable[pa.RecordBatch], now: Iterable[pa.RecordBatch], work_dir: Path, stack: ExitStack
) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    """Rows of `PREVIOUS`, each with the split that its sample has now, or had if it is gone."""
    streams = (
        stack.enter_context(closing(sort(Stream(schema, values), ("key",), work_dir=work_dir)))
        for schema, values in ((PREVIOUS, rows), (_SPLITS, now))
    )
    then, current = streams
    pieces = aligned(Stream(PREVIOUS, whole_keys(then, "key")), Stream(_SPLITS, current), ("key",))
    for batch, samples in pieces:
        if batch.num_rows:
            places = pc.index_in(batch.column("key"), samples.column("key"))
            values = samples.column("split").take(places)
            yield batch, pc.coalesce(values, batch.column("old_split"))


def published_splits(
    root: Store, previous: Previous, split_names: Sequence[str], work_dir: Path
) -> Iterator[pa.RecordBatch]:
    """The split of each sample of the previous version, also of those that were left out as bad.

    A sample of a split that is not in ``split_names``, those of today in order, is left out. Yields
    rows of `larder.samples.strata.PUBLISHED`, ordered by sample, each sample once.
    """
    live = (_live(root, place, previous.segments[place]) for place in range(len(previous.segments)))
    members = chain(chain.from_iterable(live), _bad(root, previous, None))
    names = pa.array(split_names)
    rows = (_of_split(batch, names) for batch in members)
    last = None
    with closing(sort(Stream(_RANKED, rows), ("sample", "rank"), work_dir=work_dir)) as ordered:
        for batch in ordered:
            samples = batch.column("sample")
            new = np.ones(len(samples), np.bool_)
            new[1:] = pc.not_equal(samples[1:], samples[:-1]).to_numpy(zero_copy_only=False)
            new[0] = samples[0].as_py() != last
            last = samples[-1].as_py()
            yield batch.select(PUBLISHED.names).filter(pa.array(new))


def _of_split(batch: pa.RecordBatch, names: pa.Array) -> pa.RecordBatch:
    splits = pc.index_in(batch.column("old_split"), names).cast(pa.int16())
    columns = [batch.column("key"), splits, batch.column("rank")]
    rows = pa.RecordBatch.from_arrays(columns, _RANKED.names).filter(splits.is_valid())
    return rows.cast(_RANKED)


def _live(root: Store, place: int, segment: PreviousSegment) -> Iterator[pa.RecordBatch]:
    """The samples of a segment that the version does not omit."""
    first_row = 0
    for batch in read_ref(root, segment.manifest("samples"), SAMPLES):
        count = batch.num_rows
        row = pa.array(np.arange(first_row, first_row + count))
        gone = _gone(segment, batch, first_row)
        first_row += count
        parts = _without_labels(batch.column("parts"))
        columns = {
            "rank": _same(0, count, pa.int32()),
            "segment": _same(place, count, pa.int32()),
            "row": row,
            "old_split": batch.column("split"),
            "parts": parts,
            "bad": pa.nulls(count, pa.string()),
            **{name: batch.column(name) for name in ("key", "label", "shard", "offset", "length")},
        }
        rows = _rows(columns)
        yield rows.filter(pa.array(~gone)) if gone.any() else rows


def _gone(segment: PreviousSegment, batch: pa.RecordBatch, first_row: int) -> npt.NDArray[np.bool_]:
    gone = np.zeros(batch.num_rows, np.bool_)
    for split, omitted in segment.omitted.items():
        facts = segment.document.splits[split]
        start = max(facts.first_row, first_row)
        stop = min(facts.first_row + facts.samples, first_row + batch.num_rows)
        if start < stop:
            omitted_mask = omitted.mask(start - facts.first_row, stop - start)
            gone[start - first_row : stop - first_row] = omitted_mask
    return gone


def _without_labels(lists: pa.Array) -> pa.Array:
    """The parts that are source objects."""
    parts = lists.flatten()
    kept = parts.field("source").is_valid()
    if pc.all(kept, min_count=0).as_py():
        return lists
    counts = np.append(0, np.cumsum(kept.to_numpy(zero_copy_only=False)))
    offsets = lists.offsets.to_numpy()
    return pa.ListArray.from_arrays(
        pa.array(counts[offsets - offsets[0]], pa.int32()), parts.filter(kept), type=lists.type
    )


def _bad(root: Store, previous: Previous, check: str | None) -> Iterator[pa.RecordBatch]:
    """The samples that were left out as bad, the latest records first, and at last others."""
    places = {segment.id: place for place, segment in enumerate(previous.segments)}
    files = previous.version.files_of("skipped")
    for rank, file in enumerate(reversed(files), 1):
        place = next((at for id_, at in places.items() if id_ in file.path.split("/")), -1)
        for batch in read_ref(root, ManifestRef.of(file), SKIPPED):
            count = batch.num_rows
            checks = batch.column("check").to_pylist()
            counts = np.array([each == check for each in checks], np.bool_)
            columns = {
                "key": batch.column("key"),
                "rank": pa.array(np.where(counts, rank, rank + len(files)), pa.int32()),
                "segment": _same(place, count, pa.int32()),
                "row": _same(-1, count, pa.int64()),
                "old_split": batch.column("split"),
                "parts": _as_packed(batch.column("parts"), counts),
                "bad": batch.column("message"),
            }
            yield _rows(columns)


def _as_packed(lists: pa.Array, counted: npt.NDArray[np.bool_]) -> pa.Array:
    """Parts of objects, as parts of a shard that are nowhere in it."""
    parts = lists.flatten()
    count = len(parts)
    lengths = pc.list_value_length(lists).to_numpy()
    sizes = np.where(np.repeat(counted, lengths), parts.field("size_bytes").to_numpy(), -1)
    columns = {
        "ext": parts.field("ext"),
        "source": parts.field("key"),
        "etag": parts.field("etag"),
        "offset": pa.nulls(count, pa.int64()),
        "length": pa.array(sizes, pa.int64()),
        "crc32c": _same(0, count, pa.uint32()),
    }
    kind = PREVIOUS.field("parts").type
    fields = list(kind.value_type)
    structs = pa.StructArray.from_arrays([columns[field.name] for field in fields], fields=fields)
    offsets = lists.offsets.to_numpy()
    return pa.ListArray.from_arrays(pa.array(offsets - offsets[0]), structs, type=kind)


def _rows(columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Rows of `PREVIOUS` that have no place in the order yet."""
    count = len(columns["key"])
    missing = {"split": pa.int16(), "order": pa.uint64()}
    given = {name: _same(0, count, kind) for name, kind in missing.items()} | dict(columns)
    arrays = [
        given[field.name] if field.name in given else pa.nulls(count, field.type)
        for field in PREVIOUS
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=PREVIOUS)


def _placed(batch: pa.RecordBatch, planner: Planner, divided: pa.Array) -> pa.RecordBatch:
    objects = _objects(batch.column("parts"), planner.annotations)
    splits, orders = planner.places(batch.column("key"), objects, divided)
    splits = np.where(splits < 0, NO_SAMPLE, splits).astype(np.int16)
    return pa.RecordBatch.from_arrays(
        [pa.array(splits), pa.array(orders), *batch.columns[2:]], schema=PREVIOUS
    )


def _objects(lists: pa.Array, annotations: Sequence[str]) -> pa.Array:
    """An object of each sample, in the split of which it is: not an entry of an annotation file."""
    sources = lists.flatten().field("source")
    starts = (lists.offsets.to_numpy() - lists.offsets[0].as_py())[:-1]
    if annotations and len(sources):
        entry = np.zeros(len(sources), np.bool_)
        for key in annotations:
            entry |= pc.starts_with(sources, f"{key}/").to_numpy(zero_copy_only=False)
        places = np.where(entry, len(sources), np.arange(len(sources)))
        firsts = np.minimum.reduceat(places, starts)
        starts = np.where(firsts < len(sources), firsts, starts)
    return sources.take(pa.array(starts))


def _same(value: int, count: int, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def is_compact(root: Store, version: VersionDocument, dataset: Dataset) -> bool:
    """Whether the documents of a version say that it is what a first build would make.

    The version has the same inputs. Where they do not say it, as with ``shards.count_min``, a plan
    finds out; see `is_first_build`.
    """
    if len(version.segments) > 1 or dataset.shards.count_min is not None:
        return False
    segment = read_segment(root, version.segments[0].id)
    return segment is not None and _is_whole(version, segment, version.skipped, {})


def is_first_build(
    version: VersionDocument,
    segment: SegmentDocument,
    dataset: Dataset,
    order: SampleOrder,
    bad: int,
    folder: Path,
) -> bool:
    """Whether a version of which no sample has changed is what a first build would make.

    ``segment`` is its first; ``bad`` is the number of samples that are left out as before.
    """
    targets: Mapping[str, int] = {}
    if dataset.shards.count_min is not None:
        options = segment.shape.options
        targets = pack(dataset, order.file, order.samples, folder, options=options).targets
    return len(version.segments) == 1 and _is_whole(version, segment, bad, targets)


def _is_whole(
    version: VersionDocument, segment: SegmentDocument, bad: int, targets: Mapping[str, int]
) -> bool:
    """Whether all that was planned for its only segment is there now, and nothing else."""
    extra = [file for file in version.files_of("skipped") if file not in segment.files]
    return (
        not version.omitted
        and not extra
        and segment.skipped == bad
        and not any(split.first_shard for split in segment.splits.values())
        and dict(segment.shape.split_bytes) == dict(targets)
    )
