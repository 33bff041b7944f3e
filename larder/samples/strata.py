"""Splits by class: every class is divided by the fractions, in bounded memory.

Samples of one group stay together as a *unit*; a sample without a group is a unit by itself. A unit
of several classes counts for the class of most of its samples. Samples of the previous version stay
in their splits, and new samples of their groups follow. Other new samples fill the splits that lack
samples. So a first build depends on the samples alone, and growth moves no sample.

The units of a class are in the order of a seeded hash, and each split takes a range of units. A
split gets its fraction of the class, rounded up or down so that the counts add up. A seeded number
for each class decides between up and down. So small classes, such as a thousand classes of two
samples, are spread over the splits in the right proportion.

Parts are written to a file when their samples are labelled, because a class can be divided only
when all its samples are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.models.dataset import HashSplits
from larder.manifest.query import Stream, query
from larder.manifest.schemas import columns
from larder.manifest.sort import SortedFile, sorted_query, write_rows
from larder.samples.arrow_columns import column_flags, column_texts
from larder.samples.labels import Labeller
from larder.samples.parts import NO_SAMPLE, PARTS
from larder.samples.splits import KeyHashes, SplitRule, Splits, seeded_hashes

PUBLISHED = pa.schema(
    [pa.field("sample", pa.string(), nullable=False), pa.field("split", pa.int16(), nullable=False)]
)
"""One row per sample of the previous version: its key, and the index of its split."""

_SPOOLED = PARTS.append(pa.field("unit", pa.uint64()))
_NUMBERS = pa.schema([("code", pa.int32()), ("number", pa.int32())])
_UNITS = pa.schema(
    [
        *columns(unit="uint64"),
        pa.field("class", pa.int32(), nullable=False),
        *columns(samples="int64", split="int16?"),
    ]
)
_DECIDED = pa.schema([_UNITS.field("unit"), _UNITS.field("split")])

_DIVIDED = """
    WITH samples AS (
        SELECT DISTINCT sample, unit, label FROM parts WHERE unit IS NOT NULL
    ), strata AS (
        SELECT unit, number, count(*) AS samples, max(split) AS split
        FROM samples
        JOIN numbers ON code = label
        LEFT JOIN published USING (sample)
        GROUP BY unit, number
    )
    SELECT
        unit,
        first(number ORDER BY samples DESC, number) AS class,
        sum(samples) AS samples,
        max(split) AS split
    FROM strata
    GROUP BY unit
"""
"""The units, with the class of most of their samples; new units have no split."""

_PLACED = """
    SELECT parts.* EXCLUDE (unit) REPLACE (coalesce(decided.split, parts.split) AS split)
    FROM parts
    LEFT JOIN decided ON decided.unit = parts.unit
"""

_Numbers = npt.NDArray[np.int64]


class StrataRule(SplitRule):
    """Splits by class. Labels do not depend on splits, so samples have split 0 until divided."""

    def __init__(self, splits: HashSplits) -> None:
        self._splits = splits
        self._hashes = KeyHashes(splits)

    def of_samples(self, sample_keys: pa.Array, of_objects: Splits) -> Splits:
        return np.zeros(len(sample_keys), np.int16)

    def divided(
        self,
        parts: Iterable[pa.RecordBatch],
        labeller: Labeller | None,
        published: Iterable[pa.RecordBatch],
        folder: Path,
    ) -> Iterator[pa.RecordBatch]:
        assert labeller is not None, "classes are divided"
        spooled = write_rows(
            Stream(_SPOOLED, map(self._with_units, parts)), folder / "strata-parts.arrow"
        )
        numbering = labeller.number()
        numbers = {"code": range(len(numbering.labels)), "number": numbering.labels}
        inputs = {
            "parts": Stream(_SPOOLED, spooled.read()),
            "numbers": Stream(_NUMBERS, [pa.record_batch(numbers, schema=_NUMBERS)]),
            "published": Stream(PUBLISHED, published),
        }
        divided = sorted_query(_DIVIDED, inputs, _UNITS, ["unit"], work_dir=folder)
        units = write_rows(Stream(_UNITS, divided), folder / "strata-units.arrow")
        inputs = {
            "parts": Stream(_SPOOLED, spooled.read()),
            "decided": Stream(_DECIDED, _decided(units, self._splits, numbering.classes)),
        }
        yield from query(_PLACED, inputs, PARTS, work_dir=folder)

    def _with_units(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Add a column ``unit`` to parts: the hash of their sample or its group."""
        real = pc.not_equal(rows.column("split"), NO_SAMPLE)
        samples = pc.if_else(real, rows.column("sample"), None).dictionary_encode()
        hashes = pa.array(self._hashes.of(column_texts(samples.dictionary)))
        return rows.append_column(_SPOOLED.field("unit"), hashes.take(samples.indices))


def _decided(
    units: SortedFile, rule: HashSplits, classes: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Yield the split of each unit, given all units in their order."""
    totals = np.zeros(len(classes), np.int64)
    kept = np.zeros((len(classes), len(rule.fractions)), np.int64)
    for batch in units.read():
        new = column_flags(batch.column("split").is_null())
        strata, samples = (batch.column(name).to_numpy() for name in ("class", "samples"))
        np.add.at(totals, strata, samples)
        splits = batch.column("split").drop_null().to_numpy()
        np.add.at(kept, (strata[~new], splits), samples[~new])
    hashes = seeded_hashes(rule.seed, b"larder stratum", classes)
    offsets = (hashes >> np.uint64(11)).astype(np.float64) / 2.0**53
    wanted = targets(totals, list(rule.fractions.values()), offsets)
    divider = Divider(needs(wanted, kept, offsets))
    for batch in units.read():
        new = batch.column("split").is_null()
        strata, samples = (batch.column(name).filter(new) for name in ("class", "samples"))
        chosen = divider.splits(strata.to_numpy().astype(np.int64), samples.to_numpy())
        splits = pc.replace_with_mask(batch.column("split"), new, pa.array(chosen))
        yield pa.RecordBatch.from_arrays([batch.column("unit"), splits], schema=_DECIDED)


_DIGITS = 6
"""Decimals to which boundaries are rounded, so that 10 times 0.7 + 0.2 is 9."""

_Fractions = npt.NDArray[np.float64]


def targets(totals: _Numbers, fractions: Sequence[float], offsets: _Fractions) -> _Numbers:
    """Compute each split's number of samples of each class: its fraction, rounded up or down.

    ``offsets`` has a number from 0 to 1, without 1, for each class. The result has shape (classes,
    splits); each row adds up to the total of the class.
    """
    shares = np.broadcast_to(np.array(fractions), (len(totals), len(fractions)))
    return _divided(totals, shares, offsets)


def needs(wanted: _Numbers, kept: _Numbers, offsets: _Fractions) -> _Numbers:
    """Compute each split's number of new samples of each class: the number that it lacks.

    If another split has too many samples, the new samples are divided in proportion to the numbers
    lacking. The arrays have shape (classes, splits): ``wanted`` are the `targets` of all samples,
    ``kept`` the samples that stay in their splits.
    """
    new = wanted.sum(axis=1) - kept.sum(axis=1)
    lacking = np.maximum(wanted - kept, 0)
    return _divided(new, lacking / np.maximum(lacking.sum(axis=1, keepdims=True), 1), offsets)


def _divided(totals: _Numbers, shares: _Fractions, offsets: _Fractions) -> _Numbers:
    ends = np.round(totals[:, None] * np.cumsum(shares, axis=1), _DIGITS)
    bounds = np.floor(ends + offsets[:, None]).astype(np.int64)
    bounds[:, -1] = totals  # even if the fractions do not add up to 1
    return np.diff(np.minimum(bounds, totals[:, None]), axis=1, prepend=0)


class Divider:
    """A divider that gives the new samples of each class to splits, in their order."""

    def __init__(self, needed: _Numbers) -> None:
        self._bounds = np.cumsum(needed, axis=1)[:, :-1]
        self._given = np.zeros(len(needed), np.int64)

    def splits(self, classes: _Numbers, weights: _Numbers) -> npt.NDArray[np.int16]:
        """Return the splits of the next samples or groups; the middle of a group decides.

        Each has a class and, as its weight, a number of samples.
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
