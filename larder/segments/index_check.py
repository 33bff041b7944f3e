"""Samples of a shard in columns, and checks of their places and labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.errors import ObjectError
from larder.manifest.schemas import INDEXED
from larder.manifest.spool import Spool
from larder.samples.indexed import IndexedSample, read_index
from larder.samples.naming import LABEL_EXT
from larder.shards.formats.format_interface import ShardFormat
from larder.shards.model import label_bytes

_CHUNK_ROWS = 4_096

_Numbers = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]

Ranges = tuple[_Numbers, _Numbers]
"""Offsets, and lengths."""


class CheckedRange(NamedTuple):
    """A range of a file, its checksum, and the place of its sample."""

    start: int
    stop: int
    crc32c: int
    sample: int


class IndexedColumns:
    """Samples of one shard in columns, in a tenth of the memory that they take as objects."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        """``rows`` are by `larder.manifest.schemas.INDEXED`."""
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
        rows = (self._rows.slice(start, _CHUNK_ROWS) for start in range(0, len(self), _CHUNK_ROWS))
        return read_index(rows)

    def named(self, places: Sequence[int]) -> tuple[str, ...]:
        """Return the keys of some samples."""
        return tuple(self._rows.column("key").take(pa.array(places, pa.int64())).to_pylist())

    def places_problem(
        self,
        size_bytes: int,
        shard_format: ShardFormat | None = None,
        *,
        begin: int = 0,
        first: int = 0,
        last: bool = True,
    ) -> str:
        """Describe the first place that is not in order, apart, and inside the file; else empty.

        With a format, samples that are ranges of bytes must also fill the shard. In a framed
        format, each part must be where the earlier headers and contents put it. A batch of samples,
        from number ``first`` on, fills the shard from ``begin`` on, and to its end if it is the
        ``last``.
        """
        counts_rows = self._counts_rows(first)
        before = np.concatenate(([begin], self._stops[:-1]))
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
            (outside & (not counts_rows), "is outside of its sample"),
            (overlapping | (stops < starts), "overlaps another part"),
            (stops > size_bytes, "is beyond the end of the shard"),
            ((stops == starts) & (self._crc32c[places] != 0), "is empty, and has a checksum"),
        ):
            if wrong.any():
                return f"the index of {self._part(int(places[np.flatnonzero(wrong)[0]]))} {message}"
        if shard_format is None or (counts_rows and not shard_format.framed):
            return ""
        if shard_format.framed and (problem := self._frames_problem(shard_format, begin)):
            return problem
        gaps = np.flatnonzero(self._starts != before)
        if len(gaps):
            (key,) = self.named([int(gaps[0])])
            return f"the index of {key} leaves a gap before it"
        end = self.end(begin) + (shard_format.empty_bytes * shard_format.framed)
        is_whole = end == size_bytes or not last
        return "" if is_whole else f"by the index, the shard has {end:,} bytes"

    def end(self, begin: int = 0) -> int:
        return int(self._stops[-1]) if len(self) else begin

    def _frames_problem(self, shard_format: ShardFormat, begin: int) -> str:
        """Find the headers of a framed shard; describe a part that does not follow them."""
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
        ends = begin + np.cumsum(head_bytes + self._lengths + np.concatenate(rests))
        offsets = np.concatenate(([begin], ends[:-1]))[: len(ends)] + head_bytes
        wrong = np.flatnonzero(offsets != self._offsets)
        if len(wrong):
            return f"the index of {self._part(int(wrong[0]))} is not where its header puts it"
        self._heads = head_bytes, np.array(checksums, np.int64)
        counts = np.bincount(self._samples, minlength=len(self))
        borders = np.concatenate(([begin], ends))[np.cumsum(counts)]
        wrong = np.flatnonzero(borders != self._stops)
        if len(wrong):
            return (
                f"the index of {self.named([int(wrong[0])])[0]} has another length than its parts"
            )
        return ""

    def spooled(self) -> Spool:
        """Copy the rows into a spool, to make the index files of other readers."""
        return Spool.of([self._rows], INDEXED)

    def ranges(self) -> Ranges:
        """Return the offsets and lengths of the parts that are ranges of the file."""
        return self._offsets[self._placed], self._lengths[self._placed]

    def _counts_rows(self, first: int) -> bool:
        """Return whether places of samples are row numbers, as in columnar formats, not bytes."""
        rows = first + np.arange(len(self))
        return bool(np.array_equal(self._starts, rows) and np.array_equal(self._stops, rows + 1))

    def _in_order(self, wanted: _Flags) -> _Numbers:
        """Return the places of some parts, sorted by offset; columnar formats do not sort them."""
        places = np.flatnonzero(wanted)
        order = np.lexsort((self._lengths[places], self._offsets[places]))
        ordered: _Numbers = places[order]
        return ordered

    def label_problems(self, classes: int) -> tuple[str, list[int]]:
        """Compare labels with parts ``cls`` and classes; return a problem, and all places."""
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
        """Return which samples have one part ``cls``, with their label's length and checksum."""
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
        """Yield the parts that are ranges, in order, without empty ones, each after its header."""
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
