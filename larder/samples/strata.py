"""Splits by class: every class is divided by the fractions, in bounded memory.

Samples that must stay together, a *unit*, are those with the same group, or a sample by itself. A
unit of several classes counts for the one that most of its samples have. What the previous version
has stays in its split, and new samples of its groups follow it; the others fill up what the splits
lack. So a first build depends on the samples alone, and growth moves nothing.

The units of a class stand in the order of a seeded hash, and each split takes a range of them. A
split gets its fraction of the class, rounded up or down so that the counts add up. Which of the two
follows from a seeded number for the class, so that classes that are too small to be divided, such
as a thousand classes of two samples, are spread over the splits in the right proportion.

Samples are written to a file when they are labelled, because a class can be divided only when all
of it is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.models import HashSplits
from larder.disk import disk_errors
from larder.manifest.query import Stream
from larder.manifest.sort import SortedFile, aligned, sort, whole_keys, write_rows
from larder.samples.columns import column_texts
from larder.samples.keys import seeded_hashes
from larder.samples.labels import Labeller
from larder.samples.parts import NO_SAMPLE, PARTS
from larder.samples.splits import KeyHashes, SplitRule, Splits

PUBLISHED = pa.schema(
    [pa.field("sample", pa.string(), nullable=False), pa.field("split", pa.int16(), nullable=False)]
)
"""One row per sample of the previous version: its key, and the index of its split."""

_NEW = -1
"""The split of what the previous version does not have."""

_SAMPLES = pa.schema(
    [
        pa.field("sample", pa.string(), nullable=False),
        pa.field("unit", pa.uint64(), nullable=False),
        pa.field("label", pa.int32(), nullable=False),
    ]
)
_UNITS = pa.schema(
    [
        pa.field("unit", pa.uint64(), nullable=False),
        pa.field("label", pa.int32(), nullable=False),
        pa.field("split", pa.int16(), nullable=False),
    ]
)
_SPOOLED = PARTS.append(pa.field("unit", pa.uint64(), nullable=False))

_Numbers = npt.NDArray[np.int64]
_Hashes = npt.NDArray[np.uint64]


class StrataRule(SplitRule):
    """Splits of classes. Labels are the same for all splits, so any will do until all are known."""

    def __init__(self, splits: HashSplits) -> None:
        self._splits = splits

    def of_samples(self, sample_keys: pa.Array, of_objects: Splits) -> Splits:
        return np.zeros(len(sample_keys), np.int16)

    def divided(
        self,
        parts: Iterable[pa.RecordBatch],
        labeller: Labeller | None,
        published: Iterable[pa.RecordBatch],
        folder: Path,
    ) -> Iterator[pa.RecordBatch]:
        """The same parts, each with the split of its sample.

        Memory is that of one sort, of a few numbers for each class, and of one row for each sample
        of a group. The rows of samples, with labels, are ordered by sample; the other rows, with
        the split `NO_SAMPLE`, may be anywhere. ``published`` has rows of `PUBLISHED`, ordered by
        sample, each sample once.
        """
        assert labeller is not None, "classes are divided"
        intake = _Intake(KeyHashes(self._splits), folder / "strata-samples.arrow")
        spooled = write_rows(Stream(_SPOOLED, intake.spool(parts)), folder / "strata-parts.arrow")
        if not intake.samples.rows:
            yield from (rows.select(PARTS.names) for rows in spooled.read())
            return
        numbering = labeller.number()
        units = _units(intake.samples, numbering.labels, published)
        with disk_errors(folder):
            decided = _decide(units, self._splits, numbering.classes, folder)
        for rows in spooled.read():
            yield _with_splits(rows, decided)


class _Intake:
    """Notes the samples while their parts are written to a file."""

    def __init__(self, hashes: KeyHashes, path: Path) -> None:
        self._hashes = hashes
        self._path = path
        self.samples: SortedFile

    def spool(self, parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows with a further column ``unit``; afterwards, ``samples`` has one row per sample."""
        noted: list[pa.RecordBatch] = []
        with self._open() as writer:
            for rows in parts:
                yield self._noted(rows, noted)
                for batch in noted:
                    writer.write_batch(batch)
                noted.clear()
        self.samples = SortedFile(self._path, _SAMPLES)

    def _open(self) -> pa.RecordBatchWriter:
        with disk_errors(self._path):
            return pa.ipc.new_file(str(self._path), _SAMPLES)

    def _noted(self, rows: pa.RecordBatch, noted: list[pa.RecordBatch]) -> pa.RecordBatch:
        real = np.flatnonzero(rows.column("split").to_numpy() != NO_SAMPLE)
        units = np.zeros(rows.num_rows, np.uint64)
        if len(real):
            keys = rows.column("sample").take(pa.array(real))
            new = np.ones(len(real), np.bool_)
            new[1:] = pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
            firsts = np.flatnonzero(new)
            samples = keys.take(pa.array(firsts))
            hashes = self._hashes.of(column_texts(samples))
            units[real] = hashes[np.cumsum(new) - 1]
            labels = rows.column("label").take(pa.array(real[firsts]))
            noted.append(
                pa.RecordBatch.from_arrays([samples, pa.array(hashes), labels], schema=_SAMPLES)
            )
        return rows.append_column(_SPOOLED.field("unit"), pa.array(units))


def _units(
    samples: SortedFile, numbers: npt.NDArray[np.int32], published: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rows of `_UNITS`: each sample's class number, and its split in the previous version."""
    pieces = aligned(Stream(_SAMPLES, samples.read()), Stream(PUBLISHED, published), ("sample",))
    for now, then in pieces:
        if now.num_rows:
            places = pc.index_in(now.column("sample"), then.column("sample"))
            splits = pc.fill_null(then.column("split").take(places), _NEW)
            labels = pa.array(numbers[now.column("label").to_numpy()])
            yield pa.RecordBatch.from_arrays([now.column("unit"), labels, splits], schema=_UNITS)


@dataclass(frozen=True, slots=True)
class _Decided:
    """The split of each unit, ordered by unit; both are files, mapped into memory."""

    units: _Hashes
    splits: Splits


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some units, ordered by unit, in columns; ``weights`` are numbers of samples."""

    units: _Hashes
    classes: _Numbers
    weights: _Numbers
    splits: Splits


def _decide(
    samples: Iterable[pa.RecordBatch],
    rule: HashSplits,
    classes: tuple[str, ...],
    folder: Path,
) -> _Decided:
    totals = np.zeros(len(classes), np.int64)
    kept = np.zeros((len(classes), len(rule.fractions)), np.int64)
    ordered = sort(Stream(_UNITS, samples), ("unit", "label"), ties=("split",), work_dir=folder)
    names = [folder / f"strata-{name}" for name in ("units", "classes", "weights", "splits")]
    with ExitStack() as stack:
        files = [stack.enter_context(name.open("wb")) for name in names]
        for piece in map(_piece, whole_keys(ordered, "unit")):
            np.add.at(totals, piece.classes, piece.weights)
            old = piece.splits != _NEW
            np.add.at(kept, (piece.classes[old], piece.splits[old]), piece.weights[old])
            columns: tuple[npt.NDArray[Any], ...] = (
                piece.units,
                piece.classes,
                piece.weights,
                piece.splits,
            )
            for file, column in zip(files, columns, strict=True):
                column.tofile(file)
    hashes = seeded_hashes(rule.seed, b"larder stratum", classes)
    offsets = (hashes >> np.uint64(11)).astype(np.float64) / 2.0**53
    wanted = targets(totals, list(rule.fractions.values()), offsets)
    divider = Divider(needs(wanted, kept, offsets))
    units, strata, weights, splits = (
        np.memmap(path, kind, "r+")
        for path, kind in zip(names, (np.uint64, np.int64, np.int64, np.int16), strict=True)
    )
    for start in range(0, len(units), _STEP):
        part = slice(start, start + _STEP)
        new = np.flatnonzero(splits[part] == _NEW)
        splits[part][new] = divider.splits(strata[part][new], weights[part][new])
    return _Decided(units, splits)


_STEP = 100_000


def _piece(rows: pa.RecordBatch) -> _Piece:
    units, labels = rows.column("unit").to_numpy(), rows.column("label").to_numpy()
    first = np.ones(len(units), np.bool_)
    first[1:] = units[1:] != units[:-1]
    starts = np.flatnonzero(first)
    runs = first.copy()
    runs[1:] |= labels[1:] != labels[:-1]
    run_starts = np.flatnonzero(runs)
    lengths = np.diff(np.append(run_starts, len(units)))
    owners = (np.cumsum(first) - 1)[run_starts]
    # Of each unit's runs the longest, which is the first of equally long ones.
    order = np.lexsort((-lengths, owners))
    longest = order[np.flatnonzero(np.diff(owners[order], prepend=-1))]
    return _Piece(
        units=units[starts],
        classes=labels[run_starts[longest]].astype(np.int64),
        weights=np.diff(np.append(starts, len(units))),
        splits=np.maximum.reduceat(rows.column("split").to_numpy(), starts),
    )


def _with_splits(rows: pa.RecordBatch, decided: _Decided) -> pa.RecordBatch:
    before = rows.column("split").to_numpy()
    places = np.searchsorted(decided.units, rows.column("unit").to_numpy())
    decisions = decided.splits[np.minimum(places, len(decided.units) - 1)]
    splits = np.where(before == NO_SAMPLE, before, decisions).astype(np.int16)
    at = PARTS.get_field_index("split")
    return rows.select(PARTS.names).set_column(at, PARTS.field(at), pa.array(splits))


_DIGITS = 6
"""Boundaries are rounded to so many decimals, so that 10 times 0.7 + 0.2 is 9."""

_Fractions = npt.NDArray[np.float64]


def targets(totals: _Numbers, fractions: Sequence[float], offsets: _Fractions) -> _Numbers:
    """How many samples of each class each split gets: its fraction, rounded up or down.

    ``offsets`` has a number from 0 to 1, without 1, for each class. The result has shape (classes,
    splits); each row adds up to the total of the class.
    """
    shares = np.broadcast_to(np.array(fractions), (len(totals), len(fractions)))
    return _divided(totals, shares, offsets)


def needs(wanted: _Numbers, kept: _Numbers, offsets: _Fractions) -> _Numbers:
    """How many of the new samples of each class each split gets.

    What a split lacks; where another has more than it should, in proportion to what each lacks. The
    arrays have shape (classes, splits): ``wanted`` are the `targets` of all samples, ``kept`` the
    samples that stay in their splits. Each row of the result adds up to the number of new samples.
    """
    new = wanted.sum(axis=1) - kept.sum(axis=1)
    lacking = np.maximum(wanted - kept, 0)
    return _divided(new, lacking / np.maximum(lacking.sum(axis=1, keepdims=True), 1), offsets)


def _divided(totals: _Numbers, shares: _Fractions, offsets: _Fractions) -> _Numbers:
    ends = np.round(totals[:, None] * np.cumsum(shares, axis=1), _DIGITS)
    bounds = np.floor(ends + offsets[:, None]).astype(np.int64)
    bounds[:, -1] = totals  # whatever the fractions add up to
    return np.diff(np.minimum(bounds, totals[:, None]), axis=1, prepend=0)


class Divider:
    """Gives the new samples of each class to splits, in the order in which they come."""

    def __init__(self, needed: _Numbers) -> None:
        self._bounds = np.cumsum(needed, axis=1)[:, :-1]
        self._given = np.zeros(len(needed), np.int64)

    def splits(self, classes: _Numbers, weights: _Numbers) -> npt.NDArray[np.int16]:
        """The split of the samples or groups that come next.

        Each has a class and, as its weight, a number of samples; a group is where its middle is.
        """
        by_class = np.argsort(classes, kind="stable")
        sorted_classes, sorted_weights = classes[by_class], weights[by_class]
        ends = np.cumsum(sorted_weights)
        starts = np.flatnonzero(np.diff(sorted_classes, prepend=-1))
        before = np.append(0, ends)[starts]
        lengths = np.diff(np.append(starts, len(classes)))
        ends += self._given[sorted_classes] - np.repeat(before, lengths)
        unique_classes = sorted_classes[starts]
        self._given[unique_classes] = ends[starts + lengths - 1]
        middles = ends - sorted_weights / 2
        chosen = (middles[:, None] > self._bounds[sorted_classes]).sum(axis=1)
        splits = np.empty(len(classes), np.int16)
        splits[by_class] = chosen
        return splits
