"""Checks one shard: the digests of its files, and every part and label by the index.

Every file is read once, from front to back: its sha256 and the CRC-32C of each part that is a range
of it are computed in the same pass. In a tar archive, so are the headers of members, which follow
from the index. Samples of other formats are read once more, by the format's own reader, which
compares names and frames; so are all samples of a shard that is damaged, to find out which of them
are concerned.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.errors import DamageError, NotFoundError, ObjectError
from larder.manifest.sealed import StoredFile
from larder.manifest.spool import Spool
from larder.samples.indexed import IndexedSample, read_index
from larder.samples.naming import LABEL_EXT
from larder.shards.formats.base import ShardFormat
from larder.shards.model import label_bytes
from larder.store.base import Readable, Store
from larder.verify.findings import MISSING, SHOWN_SAMPLES, Finding, Role, compared, is_broken
from larder.versions.rows import INDEXED

_CHUNK_ROWS = 4_096

_Numbers = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


class CheckedRange(NamedTuple):
    """A range of a file, its checksum, and the place of the sample that it belongs to."""

    start: int
    stop: int
    crc32c: int
    sample: int


class ShardIndex:
    """The samples of a shard, in a tenth of the memory that they take as objects."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        """``rows`` are by `larder.versions.rows.INDEXED`."""
        self._rows = rows
        self._heads: tuple[_Numbers, _Numbers] | None = None
        lists = rows.column("parts")
        self._parts = lists.flatten()
        counts = pc.list_value_length(lists).to_numpy()
        self._samples = np.repeat(np.arange(len(self), dtype=np.int64), counts)
        self._starts = _numbers(self._rows.column("offset"))
        self._stops = self._starts + _numbers(self._rows.column("length"))
        offsets = self._parts.field("offset")
        self._placed: _Flags = offsets.is_valid().to_numpy(zero_copy_only=False)
        self._offsets = _numbers(offsets.fill_null(-1))
        self._lengths = _numbers(self._parts.field("length"))
        self._crc32c = _numbers(self._parts.field("crc32c"))

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def __iter__(self) -> Iterator[IndexedSample]:
        """The samples in order, made as they are needed."""
        rows = (self._rows.slice(start, _CHUNK_ROWS) for start in range(0, len(self), _CHUNK_ROWS))
        return read_index(rows)

    def named(self, places: Sequence[int]) -> tuple[str, ...]:
        """The keys of some samples."""
        return tuple(self._rows.column("key").take(pa.array(places, pa.int64())).to_pylist())

    def places_problem(self, size_bytes: int, shard_format: ShardFormat | None = None) -> str:
        """What is wrong if places are not in order, apart, and inside the file; else empty.

        With its format, the samples fill the shard, and the parts of a framed one stand where the
        lengths of the headers and contents before them put them.
        """
        before = np.concatenate(([0], self._stops[:-1]))
        bad = np.flatnonzero((self._starts < before) | (self._stops < self._starts))
        if len(bad):
            (key,) = self.named([int(bad[0])])
            start, end = int(self._starts[bad[0]]), int(before[bad[0]])
            return f"the index of {key} begins at {start:,}, before {end:,} or its own end"
        places = self._in_order(self._placed)
        samples, starts = self._samples[places], self._offsets[places]
        stops = starts + self._lengths[places]
        overlapping = starts < np.concatenate(([0], stops[:-1]))
        outside = (starts < self._starts[samples]) | (stops > self._stops[samples])
        for wrong, message in (
            (outside & (not self._counts_rows), "is outside of its sample"),
            (overlapping | (stops < starts), "overlaps another part"),
            (stops > size_bytes, "is beyond the end of the shard"),
            ((stops == starts) & (self._crc32c[places] != 0), "is empty, and has a checksum"),
        ):
            if wrong.any():
                return f"the index of {self._part(int(places[np.flatnonzero(wrong)[0]]))} {message}"
        if shard_format is None or (self._counts_rows and not shard_format.framed):
            return ""
        if shard_format.framed and (problem := self._frames_problem(shard_format)):
            return problem
        gaps = np.flatnonzero(self._starts != before)
        if len(gaps):
            (key,) = self.named([int(gaps[0])])
            return f"the index of {key} leaves a gap before it"
        end = sum(self._stops[-1:].tolist()) + (shard_format.empty_bytes * shard_format.framed)
        return "" if end == size_bytes else f"by the index, the shard has {end:,} bytes"

    def _frames_problem(self, shard_format: ShardFormat) -> str:
        """Find the headers of a framed shard; what is wrong if parts do not follow from them."""
        lengths: list[int] = []
        checksums: list[int] = []
        rests = [np.zeros(0, np.int64)]
        for start in range(0, len(self._parts), _CHUNK_ROWS):
            chunk = slice(start, start + _CHUNK_ROWS)
            keys = self._rows.column("key").take(pa.array(self._samples[chunk]))
            exts = self._parts.field("ext").slice(start, _CHUNK_ROWS)
            names = pc.binary_join_element_wise(keys, exts, ".").to_pylist()
            try:
                heads, rest = shard_format.heads(names, self._lengths[chunk])
            except ObjectError as error:
                return f"{error.where}: {error.message}"
            lengths += map(len, heads)
            checksums += map(google_crc32c.value, heads)
            rests.append(rest)
        head_bytes = np.array(lengths, np.int64)
        ends = np.cumsum(head_bytes + self._lengths + np.concatenate(rests))
        offsets = np.concatenate(([0], ends[:-1]))[: len(ends)] + head_bytes
        wrong = np.flatnonzero(offsets != self._offsets)
        if len(wrong):
            return f"the index of {self._part(int(wrong[0]))} is not where its header puts it"
        self._heads = head_bytes, np.array(checksums, np.int64)
        counts = np.bincount(self._samples, minlength=len(self))
        borders = np.concatenate(([0], ends))[np.cumsum(counts)]
        wrong = np.flatnonzero(borders != self._stops)
        if len(wrong):
            return (
                f"the index of {self.named([int(wrong[0])])[0]} has another length than its parts"
            )
        return ""

    def spooled(self) -> Spool:
        """The rows, for what makes the index files of other readers."""
        spool = Spool(INDEXED)
        spool.append(self._rows)
        return spool

    @property
    def _counts_rows(self) -> bool:
        """Whether places of samples are numbers of rows, as in columnar formats, not bytes."""
        rows = np.arange(len(self))
        return bool(np.array_equal(self._starts, rows) and np.array_equal(self._stops, rows + 1))

    def _in_order(self, wanted: _Flags) -> _Numbers:
        """The places of some parts, in the order of their offsets: columns are not that of rows."""
        places = np.flatnonzero(wanted)
        order = np.lexsort((self._lengths[places], self._offsets[places]))
        ordered: _Numbers = places[order]
        return ordered

    def label_problems(self, classes: int) -> tuple[str, list[int]]:
        """Compare labels with parts ``cls`` and classes; returns a problem, and all places."""
        column = self._rows.column("label")
        labelled: _Flags = column.is_valid().to_numpy(zero_copy_only=False)
        labels = _numbers(column.fill_null(-1))
        unknown = labelled & ((labels < 0) | (labels >= classes))
        wrong = labelled & ~unknown & ~self._have_labels(labels)
        bad = np.flatnonzero(unknown | wrong).tolist()
        if not bad:
            return "", []
        (key,), label = self.named(bad[:1]), int(labels[bad[0]])
        if unknown[bad[0]]:
            return f"{key} has the label {label} of {classes} classes", bad
        return f"the part cls of {key} is not its label, {label}", bad

    def _have_labels(self, labels: _Numbers) -> _Flags:
        """Which samples have one part ``cls``, with the length and checksum of their label."""
        exts = pc.equal(self._parts.field("ext"), LABEL_EXT)
        places = np.flatnonzero(exts.to_numpy(zero_copy_only=False))
        samples = self._samples[places]
        unique, inverse = np.unique(labels[samples], return_inverse=True)
        data = [label_bytes(label) for label in unique.tolist()]
        lengths = np.array([len(each) for each in data], np.int64)
        crcs = np.array([google_crc32c.value(each) for each in data], np.int64)
        right = self._lengths[places] == lengths[inverse]
        right &= self._crc32c[places] == crcs[inverse]
        one = np.bincount(samples, minlength=len(self)) == 1
        labelled: _Flags = one & (np.bincount(samples[right], minlength=len(self)) == 1)
        return labelled

    def spans(self) -> Iterator[CheckedRange]:
        """The parts that are ranges, in order, without empty ones, each after its header."""
        places = self._in_order(self._placed)
        for start in range(0, len(places), _CHUNK_ROWS):
            chunk = places[start : start + _CHUNK_ROWS]
            starts, samples = self._offsets[chunk], self._samples[chunk]
            parts = (starts, starts + self._lengths[chunk], self._crc32c[chunk], samples)
            heads: tuple[_Numbers, ...] = ()
            if self._heads:
                lengths, crc32c = self._heads
                heads = (starts - lengths[chunk], starts, crc32c[chunk], samples)
            for each in zip(*(column.tolist() for column in (*heads, *parts)), strict=True):
                ranges = (CheckedRange(*each[at : at + 4]) for at in range(0, len(each), 4))
                yield from (span for span in ranges if span.start < span.stop)

    def _part(self, place: int) -> str:
        (key,) = self.named([int(self._samples[place])])
        return f"{key}.{self._parts.field('ext')[place].as_py()}"


def _numbers(column: Any) -> _Numbers:
    numbers: _Numbers = column.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


_BUFFER_BYTES = 1 << 20
_READERS_TRIED = 1_000
"""After so many damaged samples in one shard, its remaining samples count as damaged too."""


def inspect_shard(
    store: Readable,
    files: Sequence[StoredFile],
    samples: ShardIndex | None,
    shard_format: ShardFormat | None,
    count: Callable[[int], None] = lambda size_bytes: None,
    spool: Store | None = None,
    first: int = 0,
) -> list[Finding]:
    """Read a shard, and compare it with what was published; at most one finding for each file.

    ``first`` is how many samples of the segment were planned for the shards before it.

    ``samples`` and ``shard_format`` are None if they are not known. What the format's reader has to
    read once more is kept in ``spool``, or else read from the store again. Memory: a buffer of the
    store, and unless the format is framed what its reader holds of one sample.
    """
    path = files[0].path
    places = samples.places_problem(files[0].bytes, shard_format) if samples else ""
    index = None if places else samples
    again = index is not None and shard_format is not None and not shard_format.framed
    spooled = spool if again else None
    wrong: list[tuple[int, str, str]] = []
    bad: set[int] = set()
    for number, file in enumerate(files):
        spans = _Spans(index.spans() if index and number == 0 else iter(()))
        with ExitStack() as stack:
            each: list[Callable[[memoryview], object]] = [spans.add, lambda data: count(len(data))]
            if spooled:
                writer = stack.enter_context(spooled.writer(file.path))
                each.append(writer.write)
            give = _pieces_to(each)
            code, message = compared(store, file, give)
            if spooled:
                writer.commit()
        bad |= spans.bad()
        if code:
            wrong.append((number, code, message))
    if wrong:
        if index and shard_format:
            bad |= _unreadable(store, path, index, shard_format, bad)
        if wrong[0][0] == 0 and wrong[0][2] == MISSING:
            bad = set(range(len(samples or ())))
        return [
            _finding(files[number].path, "shard", code, message, samples, bad)
            for number, code, message in wrong
        ]
    if places:
        return [_finding(path, "content", "damage.manifest", places, samples)]
    if not bad and again and index and shard_format:
        bad = _unreadable(spooled or store, path, index, shard_format)
    if bad:
        message = "the file is as it was published, but its samples differ from the index"
        return [_finding(path, "content", "damage.record", message, samples, bad)]
    others = shard_format.beside(index, first) if index and shard_format else ()
    message = "the file is as it was published, but does not follow from the samples in the index"
    return [
        Finding(file.path, "content", "damage.manifest", message)
        for file, data in zip(files[1:], others, strict=False)
        if hashlib.sha256(data).hexdigest() != file.sha256
    ]


def _finding(
    key: str,
    role: Role,
    code: str,
    message: str,
    samples: ShardIndex | None,
    bad: Container[int] = (),
) -> Finding:
    numbers = [number for number in range(len(samples or ())) if number in bad]
    named = samples.named(numbers[:SHOWN_SAMPLES]) if samples else ()
    return Finding(key, role, code, message, named, len(numbers))


def _pieces_to(each: Sequence[Callable[[memoryview], object]]) -> Callable[[memoryview], None]:
    """Give every function a buffer in pieces, which bounds what it copies."""

    def give(buffer: memoryview) -> None:
        data = memoryview(buffer).cast("B")
        for start in range(0, len(data), _BUFFER_BYTES):
            for function in each:
                function(data[start : start + _BUFFER_BYTES])

    return give


class _Spans:
    """The samples whose ranges of a file that is read from front to back differ."""

    def __init__(self, spans: Iterator[CheckedRange]) -> None:
        self._bad: set[int] = set()
        self._size_bytes = 0
        self._spans = spans
        self._span = next(spans, None)
        self._crc32c = 0

    def bad(self) -> set[int]:
        """The samples, with those of ranges that did not come."""
        if self._span is not None:
            self._bad |= {span.sample for span in chain([self._span], self._spans)}
        return self._bad

    def add(self, data: memoryview) -> None:
        """The next bytes of the file."""
        begin, end = self._size_bytes, self._size_bytes + len(data)
        self._size_bytes = end
        span = self._span
        while span is not None and span.start < end:
            low, high = max(span.start, begin) - begin, min(span.stop, end) - begin
            # The checksum's C code does not accept a memoryview.
            self._crc32c = google_crc32c.extend(self._crc32c, bytes(data[low:high]))
            if span.stop > end:
                break
            if self._crc32c != span.crc32c:
                self._bad.add(span.sample)
            self._crc32c = 0
            span = next(self._spans, None)
        self._span = span


def _unreadable(
    store: Readable,
    key: str,
    samples: ShardIndex,
    shard_format: ShardFormat,
    skip: Container[int] = (),
) -> set[int]:
    """The samples that the format's reader cannot read, or that differ from the index."""
    bad: set[int] = set()
    last = max((number for number in range(len(samples)) if number not in skip), default=-1)
    left = ((number, sample) for number, sample in enumerate(samples) if number not in skip)
    number = -1
    while number < last:
        try:
            with shard_format.open(store, key) as reader:
                for place, sample in left:
                    number = place
                    reader.read(sample)
        except (DamageError, ObjectError) as error:
            is_damage = isinstance(error, DamageError | NotFoundError) or is_broken(store, error)
            if not is_damage:
                raise
            if number + 1 == 0 or number in bad:  # it cannot even be opened
                return set(range(len(samples)))
            bad.add(number)
        if len(bad) >= _READERS_TRIED:
            return bad | set(range(number, len(samples)))
    return bad
