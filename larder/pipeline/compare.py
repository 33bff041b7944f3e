"""Compares the samples that are there now with those of the previous version.

Both are streams in the same order, so each pair of samples is looked at once. A sample is unchanged
if it has the same split, label and parts. A part is the same if its object has the same key, size
and etag as when it was packed, or if it is as the previous version saw it. If only the etag
differs, and etags do not tell contents apart, as on a file system, the object is read and compared
with the checksum of the part; the objects of a sample that was bad are checked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import IO, TypeVar

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.shape import Transform
from larder.disk import disk_errors
from larder.errors import ObjectError
from larder.limits import map_ahead
from larder.manifest.digest import format_crc32c
from larder.manifest.extents import is_derived
from larder.manifest.query import Stream
from larder.manifest.rows import RowDigest
from larder.manifest.schemas import SAMPLE_ORDER
from larder.manifest.sort import SortedFile, aligned
from larder.pipeline.previous import IN_ORDER, PREVIOUS, Previous
from larder.progress import Progress
from larder.samples.columns import column_structs
from larder.samples.images import is_image
from larder.samples.planner import Planner
from larder.shards.images.check import ImageRules, stored_image
from larder.shards.images.transform import codec_versions
from larder.shards.model import Part, PlannedSample
from larder.shards.reading.fetch import UNDECODABLE, fetch, sample_bytes
from larder.shards.reading.large import check_streamed
from larder.store.base import Readable

READERS = 8
"""Objects that are read at once."""

MAX_CHECKED_BYTES = 64 * 1024**2
"""A larger sample that was bad is not read into memory: only the ranges that are needed are."""

_Flags = npt.NDArray[np.bool_]


class ContentComparer:
    """Compares the contents of objects with checksums; a context manager.

    ``transforms`` are those of the previous segments. The source is read only if etags do not tell
    contents apart.
    """

    def __init__(
        self,
        source: Readable,
        rules: ImageRules,
        transforms: Sequence[Transform | None],
        progress: Progress,
    ) -> None:
        self._source = source
        self._rules = rules
        self._transforms = transforms
        self._progress = progress
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="check")
        self._started = False

    def transformed(self, exts: pa.Array, segments: npt.NDArray[np.int32]) -> _Flags:
        """Which parts are images that their segments (-1 for none) have transformed."""
        flags: _Flags = np.array([each is not None for each in (*self._transforms, None)])[segments]
        if flags.any():
            encoded = exts.dictionary_encode()
            images = [is_image(ext) for ext in encoded.dictionary.to_pylist()]
            flags &= np.array(images, np.bool_)[encoded.indices.to_numpy()]
        return flags

    def repeatable(self, segments: npt.NDArray[np.int32]) -> _Flags:
        """Whether images can be transformed as they were in their segments."""
        transform = self._rules.transform
        current = replace(transform, codecs=codec_versions()) if transform else None
        flags: _Flags = np.array([each == current for each in (*self._transforms, None)])[segments]
        return flags

    def same(self, now: pa.StructArray, then: pa.StructArray, stored: _Flags) -> _Flags:
        """Whether each object has the content of the part.

        ``now`` are parts of `SAMPLE_ORDER`, ``then`` of `larder.manifest.schemas.SAMPLES`;
        ``stored`` says which of them are transformed before they are compared.
        """
        if not len(now) or self._source.features.etag_is_md5:
            return np.zeros(len(now), np.bool_)
        if not self._started:
            self._progress.start("compare")
            self._started = True
        columns = (now.field("key"), now.field("etag"), then.field("crc32c"), then.field("ext"))
        rows = zip(*(column.to_pylist() for column in columns), stored.tolist(), strict=True)
        verdicts = map_ahead(self._pool, lambda row: self._is(*row), rows, window=4 * READERS)
        return np.fromiter(verdicts, np.bool_, len(now))

    def still_bad(self, now: pa.RecordBatch) -> _Flags:
        """Whether samples that were bad still are, although the etags of their objects differ.

        ``now`` are rows of `_NOW`. They are checked wherever they are, because a file system does
        not tell whether they were changed: so what is planned is the same everywhere.
        """
        names = Part._fields
        samples = (
            PlannedSample("", key, None, parts)
            for key, parts in zip(
                now.column("key").to_pylist(),
                column_structs(now.column("parts"), names, Part),
                strict=True,
            )
        )
        return np.fromiter(map(self._is_bad, samples), np.bool_, now.num_rows)

    def _is_bad(self, sample: PlannedSample) -> bool:
        read = check_streamed if sample_bytes(sample) > MAX_CHECKED_BYTES else fetch
        failures = read(self._source, sample, self._rules).failures
        return bool(failures) and all(failure.code == UNDECODABLE for failure in failures)

    def _is(self, key: str, etag: str, crc32c: int, ext: str, stored: bool) -> bool:
        crc = 0
        try:
            if stored:
                data = self._source.get(key, if_match=etag or None)
                image = stored_image(ext, data, where=key, rules=self._rules)
                return image is not None and google_crc32c.value(image) == crc32c
            with self._source.open(key, if_match=etag or None) as reader:
                for buffer in reader:
                    crc = google_crc32c.extend(crc, bytes(buffer))
        except ObjectError:
            return False
        finally:
            self._progress.advance("compare", objects=1)
        return crc == crc32c

    def __enter__(self) -> ContentComparer:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        if self._started:
            self._progress.finish("compare")


Number = TypeVar("Number", np.int8, np.int64)

_Numbers = npt.NDArray[np.int64]

_NOW = pa.schema(
    [PREVIOUS.field(name) for name in ("split", "order")]
    + [SAMPLE_ORDER.field(name) for name in ("key", "label", "parts")]
)


class Kind(IntEnum):
    """What a sample is, compared with the previous version."""

    UNCHANGED = 0
    ADDED = 1
    CHANGED = 2
    RELABELLED = 3
    MOVED = 4
    BAD = 5


@dataclass(frozen=True, slots=True)
class Changes:
    """Numbers of samples.

    ``relabelled`` have another label, ``moved`` are in another split, ``removed`` are not there any
    more; ``bad`` were left out as bad before, and are unchanged since.
    """

    unchanged: int = 0
    added: int = 0
    changed: int = 0
    relabelled: int = 0
    moved: int = 0
    removed: int = 0
    bad: int = 0

    @property
    def any(self) -> bool:
        return any((self.added, self.changed, self.relabelled, self.moved, self.removed))


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison found. All arrays are files in a private directory, mapped into memory.

    ``kinds`` has the `Kind` of each sample that is there now, in their order, and ``positions`` the
    row of each in ``previous`` (rows of `larder.pipeline.previous.PREVIOUS`); -1 if it is new.

    For each segment of the previous version, ``gone`` says whether each of its rows is gone:
    omitted before, or removed or changed now; and ``outdated`` is a digest of its records of bad
    samples that are not left out any more without being tried: removed, repaired or changed; None
    if there are none.
    """

    changes: Changes
    kinds: npt.NDArray[np.int8]
    positions: _Numbers
    previous: SortedFile
    gone: tuple[_Flags, ...]
    outdated: tuple[str | None, ...]


def compare(
    order: Iterable[pa.RecordBatch],
    previous: Previous,
    rows: SortedFile,
    planner: Planner,
    comparer: ContentComparer,
    folder: Path,
) -> Comparison:
    """Compare all samples with those of the previous version. Memory does not grow with them.

    ``order`` has rows of `SAMPLE_ORDER`: the samples that are there now, in order; ``rows`` is from
    `larder.pipeline.previous.previous_rows`.
    """
    gone = tuple(_gone(previous, place, folder) for place in range(len(previous.segments)))
    counts = np.zeros(len(Kind), np.int64)
    removed = before = 0
    records = _Records(len(previous.segments))
    with ExitStack() as stack:
        kinds_file, positions_file = (
            stack.enter_context(_output(folder / name)) for name in ("kinds", "positions")
        )
        names = pa.array(planner.split_names)
        pieces = aligned(
            Stream(_NOW, _now(order, planner)), Stream(PREVIOUS, rows.read()), IN_ORDER
        )
        for now, then in pieces:
            matches = _matches(now, then)
            kinds = _kinds(now, then, matches, names, comparer)
            counts += np.bincount(kinds, minlength=len(Kind))
            matched = np.zeros(then.num_rows, np.bool_)
            matched[matches[matches >= 0]] = True
            kept = np.zeros(then.num_rows, np.bool_)
            kept[matches[kinds == Kind.UNCHANGED]] = True
            live = then.column("bad").is_null().to_numpy(zero_copy_only=False)
            removed += int((live & ~matched).sum())
            _mark(gone, then, live & ~kept)
            records.compare(then.filter(pa.array(~live)), now.filter(pa.array(kinds == Kind.BAD)))
            kinds.tofile(kinds_file)
            np.where(matches >= 0, matches + before, -1).tofile(positions_file)
            before += then.num_rows
    return Comparison(
        changes=Changes(
            unchanged=int(counts[Kind.UNCHANGED]),
            added=int(counts[Kind.ADDED]),
            changed=int(counts[Kind.CHANGED]),
            relabelled=int(counts[Kind.RELABELLED]),
            moved=int(counts[Kind.MOVED]),
            removed=removed,
            bad=int(counts[Kind.BAD]),
        ),
        kinds=_mapped(folder / "kinds", np.int8),
        positions=_mapped(folder / "positions", np.int64),
        previous=rows,
        gone=gone,
        outdated=records.outdated(),
    )


def _output(path: Path) -> IO[bytes]:
    with disk_errors(path):
        return path.open("wb")


def _mapped(path: Path, kind: type[Number]) -> npt.NDArray[Number]:
    if not path.stat().st_size:
        return np.zeros(0, kind)
    return np.memmap(path, kind, "r")


def _gone(previous: Previous, place: int, folder: Path) -> _Flags:
    """The rows of a segment that the previous version omits, as an array that can be changed."""
    segment = previous.segments[place]
    if not segment.samples:
        return np.zeros(0, np.bool_)
    path = folder / f"gone-{place}"
    with disk_errors(path):
        gone: _Flags = np.memmap(path, np.bool_, "w+", shape=(segment.samples,))
    for split, omitted in segment.omitted.items():
        first = segment.document.splits[split].first_row
        for start, stop in omitted.ranges.tolist():
            gone[first + start : first + stop] = True
    return gone


def _now(order: Iterable[pa.RecordBatch], planner: Planner) -> Iterator[pa.RecordBatch]:
    names = pa.array(planner.split_names)
    for batch in order:
        splits = pc.index_in(batch.column("split"), names).cast(pa.int16())
        orders = pa.array(planner.orders(batch.column("key")))
        columns = [batch.column(name) for name in ("key", "label", "parts")]
        yield pa.RecordBatch.from_arrays([splits, orders, *columns], schema=_NOW)


def _matches(now: pa.RecordBatch, then: pa.RecordBatch) -> _Numbers:
    """For each sample now, the row of the same sample then; -1 if there is none."""
    # Of equal keys, the first one is found, which has the lowest rank.
    rows = pc.index_in(now.column("key"), then.column("key"))
    numbers: _Numbers = pc.fill_null(rows, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _kinds(
    now: pa.RecordBatch,
    then: pa.RecordBatch,
    matches: _Numbers,
    names: pa.Array,
    comparer: ContentComparer,
) -> npt.NDArray[np.int8]:
    kinds = np.full(now.num_rows, Kind.ADDED, np.int8)
    matched = np.flatnonzero(matches >= 0)
    if not len(matched):
        return kinds
    one, other = now.take(pa.array(matched)), then.take(pa.array(matches[matched]))
    same = _same_parts(one, other, comparer)
    bad = other.column("bad").is_valid().to_numpy(zero_copy_only=False)
    moved = _differ(names.take(one.column("split")), other.column("old_split"))
    relabelled = _differ(*(pc.fill_null(rows.column("label"), -1) for rows in (one, other)))
    kinds[matched] = np.select(
        [bad & same, bad, ~same, moved, relabelled],
        [Kind.BAD, Kind.ADDED, Kind.CHANGED, Kind.MOVED, Kind.RELABELLED],
        Kind.UNCHANGED,
    )
    return kinds


def _differ(one: pa.Array, other: pa.Array) -> _Flags:
    flags: _Flags = pc.not_equal(one, other).to_numpy(zero_copy_only=False)
    return flags


def _same_parts(one: pa.RecordBatch, other: pa.RecordBatch, comparer: ContentComparer) -> _Flags:
    """Whether each sample has the parts that it had."""
    lists, packed = one.column("parts"), other.column("parts")
    counts = pc.list_value_length(lists).to_numpy()
    same: _Flags = counts == pc.list_value_length(packed).to_numpy()
    rows = np.flatnonzero(same)
    if not len(rows):
        return same
    chosen = pa.array(rows)
    now, then = lists.take(chosen).flatten(), packed.take(chosen).flatten()
    alike = ~(
        _differ(now.field("ext"), then.field("ext"))
        | _differ(now.field("key"), then.field("source"))
    )
    bad = other.column("bad").take(chosen).is_valid().to_numpy(zero_copy_only=False)
    segments = np.repeat(other.column("segment").take(chosen).to_numpy(), counts[rows])
    stored = comparer.transformed(then.field("ext"), segments) & ~np.repeat(bad, counts[rows])
    alike &= stored | ~_differ(now.field("size_bytes"), then.field("length"))
    certain = ~_differ(now.field("etag"), then.field("etag"))
    certain |= now.field("unchanged").to_numpy(zero_copy_only=False)
    certain |= _same_content(now, then, alike & ~certain)
    starts = np.append(0, np.cumsum(counts[rows])[:-1])
    # Objects are read only if all else is the same.
    readable = np.logical_and.reduceat(alike, starts)
    unsure = np.flatnonzero(~certain & np.repeat(readable & ~bad, counts[rows]))
    unsure = unsure[~stored[unsure] | comparer.repeatable(segments[unsure])]
    objects = now.take(pa.array(unsure)), then.take(pa.array(unsure))
    certain[unsure] = comparer.same(*objects, stored[unsure])
    same[rows] = np.logical_and.reduceat(alike & certain, starts)
    again = rows[readable & bad & ~same[rows]]
    same[again] = comparer.still_bad(one.take(pa.array(again)))
    return same


def _same_content(now: pa.StructArray, then: pa.StructArray, unsure: _Flags) -> _Flags:
    """Which derived objects have the checksum that they had, wherever they are now."""
    same = np.zeros(len(now), np.bool_)
    unsure &= now.field("checksum").is_valid().to_numpy(zero_copy_only=False)
    unsure &= is_derived(now.field("etag")).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(unsure)
    chosen = pa.array(rows)
    checksums = (
        field.take(chosen).to_pylist() for field in (now.field("checksum"), then.field("crc32c"))
    )
    same[rows] = [one == format_crc32c(other) for one, other in zip(*checksums, strict=True)]
    return same


def _mark(gone: tuple[_Flags, ...], then: pa.RecordBatch, lost: _Flags) -> None:
    rows = np.flatnonzero(lost)
    if not len(rows):
        return
    segments = then.column("segment").to_numpy()[rows]
    numbers = then.column("row").to_numpy()[rows]
    for place in np.unique(segments).tolist():
        gone[place][numbers[segments == place]] = True


class _Records:
    """Digests the records of bad samples that do not apply any more, by segment."""

    def __init__(self, segments: int) -> None:
        self._digests: list[RowDigest | None] = [None] * segments
        self._last: list[str] = []

    def compare(self, records: pa.RecordBatch, bad: pa.RecordBatch) -> None:
        """Compare a piece of both.

        ``records`` are rows of `PREVIOUS`, in order; the records of a sample may be in two pieces.
        ``bad`` are rows of `_NOW`: the samples that are as in their records.
        """
        keys = [*self._last, *bad.column("key").to_pylist()]
        self._last = keys[-1:]
        if not records.num_rows:
            return
        apply = pc.is_in(records.column("key"), pa.array(keys, pa.string()))
        left = records.filter(pc.invert(apply))
        for place in pc.unique(left.column("segment")).to_pylist():
            if place >= 0:  # those of the version itself are written again as they apply
                digest = self._digests[place] = self._digests[place] or RowDigest()
                rows = left.filter(pc.equal(left.column("segment"), place))
                digest.update_batch(rows.select(["key"]))

    def outdated(self) -> tuple[str | None, ...]:
        """A digest for each segment that has such records."""
        return tuple(digest.hexdigest() if digest else None for digest in self._digests)
