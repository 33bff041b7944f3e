"""Group sorted parts into samples: adjacent parts with the same sample key.

Samples that lack a part of ``samples.join`` are refused, left out or kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.models.joins import Missing
from larder.errors import ConfigError, Failure, Failures
from larder.manifest.extents import is_own
from larder.manifest.schemas import SAMPLE_ORDER, lists_of
from larder.samples.arrow_columns import Flags, column_flags

_PARTS = SAMPLE_ORDER.field("parts").type


class Grouped:
    """Rows of `larder.samples.parts.PARTS` with complete samples.

    The parts of a sample are adjacent: ``starts`` has the first row of each, ``lengths`` their
    number.
    """

    def __init__(self, rows: pa.RecordBatch, starts: npt.NDArray[np.intp]) -> None:
        self.rows = rows
        self.starts = starts
        self.lengths = np.diff(np.append(starts, rows.num_rows))

    def first(self, column: str) -> pa.Array:
        """Return one value per sample of a column that is equal for all parts of a sample."""
        return self.rows.column(column).take(pa.array(self.starts))

    def parts(self, fields: Sequence[pa.Field] = tuple(_PARTS.value_type)) -> pa.Array:
        kind = pa.list_(pa.field("part", pa.struct(fields), nullable=False))
        return lists_of(kind, self.rows.column, np.append(self.starts, self.rows.num_rows))


def group_parts(
    batches: Iterable[pa.RecordBatch], by: Sequence[str] = ("sample",)
) -> Iterator[Grouped]:
    """Divide rows of `larder.samples.parts.PARTS`, ordered by the columns ``by`` first, by sample.

    The parts of one sample must fit into memory.
    """
    pieces: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        starts = np.flatnonzero(~_same_as_before(batch, by))
        last = int(starts[-1])
        if pieces and last == 0 and _same(pieces[-1], batch, by):
            pieces.append(batch)  # a sample that spans several batches
            continue
        yield from _joined([*pieces, batch.slice(0, last)], by)
        pieces = [batch.slice(last)]
    yield from _joined(pieces, by)


def without_duplicates(
    grouped: Grouped, split_names: Sequence[str], bad_keys: Failures
) -> tuple[Grouped, pa.RecordBatch]:
    """Keep one part per extension and sample; return the kept parts, and the rows left out.

    The first part by key is kept; the others are bad keys. Rows must be ordered by sample,
    extension and key.

    Raises:
        ConfigError: ``config.unmatched_split``: a sample has parts in two splits.
    """
    rows = grouped.rows
    duplicate = _same_as_before(rows, ("sample", "ext"))
    bad = rows.filter(pa.array(duplicate))
    columns = [bad.column("key"), bad.column("ext"), is_own(bad.column("etag"))]
    for key, ext, is_entry in zip(*(column.to_pylist() for column in columns), strict=True):
        message = f"the sample has another part {ext} after extensions are normalised"
        if is_entry:
            message = f"the sample has another part {ext}, of an object or of another entry"
            message += "; with samples.annotations.many, several entries are a list"
        bad_keys.add(Failure(key, "config.bad_key", message))
    rows = rows.filter(pa.array(~duplicate)) if len(bad) else rows
    same = _same_as_before(rows, ("sample",))
    _check_splits(rows, same, split_names)
    return Grouped(rows, np.flatnonzero(~same)), bad


def _joined(batches: Sequence[pa.RecordBatch], by: Sequence[str]) -> Iterator[Grouped]:
    if sum(batch.num_rows for batch in batches):
        rows = pa.concat_batches(batches)
        yield Grouped(rows, np.flatnonzero(~_same_as_before(rows, by)))


def _same(before: pa.RecordBatch, after: pa.RecordBatch, by: Sequence[str]) -> bool:
    return all(before.column(name)[-1] == after.column(name)[0] for name in by)


def _same_as_before(rows: pa.RecordBatch, by: Sequence[str]) -> Flags:
    """Flag rows that equal the previous row in these columns; false for the first row."""
    same = np.ones(rows.num_rows, np.bool_)
    same[:1] = False
    for name in by:
        column = rows.column(name)
        same[1:] &= column_flags(pc.equal(column[1:], column[:-1]))
    return same


def _check_splits(rows: pa.RecordBatch, same: Flags, split_names: Sequence[str]) -> None:
    splits = rows.column("split").to_numpy()
    crossing = np.flatnonzero(same[1:] & (splits[1:] != splits[:-1]))
    if len(crossing):
        at = int(crossing[0])
        one, two = rows.slice(at, 2).select(["key", "split"]).to_pylist()
        raise ConfigError(
            "config.unmatched_split",
            f"{one['key']} is in split {split_names[one['split']]!r} and "
            f"{two['key']} in {split_names[two['split']]!r}, but they belong to one sample",
            where=rows.column("sample")[at].as_py(),
            hint="make the globs of a split match all parts of a sample",
        )


class Complete:
    """A filter of samples with a part of each pattern.

    Only ``missing: keep`` lets incomplete samples pass. Annotations count as one more pattern,
    after the named patterns; ``names`` is empty without joins.
    """

    def __init__(self, names: Sequence[str], annotated: bool, missing: Missing) -> None:
        patterns = [*(names or ["object"]), *(["annotation"] if annotated else [])]
        self.annotation = len(patterns) - 1
        self.incomplete = Failures()
        self._names = patterns
        self._annotated = annotated
        self._keep = missing == "keep"

    def divide(self, grouped: Grouped) -> tuple[Grouped, pa.RecordBatch]:
        """Return the samples that pass, and the objects of the other samples."""
        if len(self._names) == 1:
            return grouped, grouped.rows.slice(0, 0)
        patterns = _found(grouped)
        all_ = 2 ** len(self._names) - 1
        only_annotation = self._annotated & (patterns == 1 << self.annotation)
        passes = ~only_annotation if self._keep else patterns == all_
        if passes.all():
            return grouped, grouped.rows.slice(0, 0)
        self._note(grouped, patterns, ~passes)
        kept = np.repeat(passes, grouped.lengths)
        lengths = grouped.lengths[passes]
        starts = np.cumsum(lengths) - lengths
        rest = grouped.rows.filter(pa.array(~kept))
        if self._annotated:
            objects = pc.not_equal(rest.column("pattern"), pa.scalar(self.annotation, pa.int16()))
            rest = rest.filter(objects)
        return Grouped(grouped.rows.filter(pa.array(kept)), starts), rest

    def _note(self, grouped: Grouped, patterns: npt.NDArray[np.int64], without: Flags) -> None:
        rows = np.flatnonzero(without)
        chosen = rows[: self.incomplete.room]
        keys = grouped.first("sample").take(pa.array(chosen)).to_pylist()
        failures = map(self._failure, keys, patterns[chosen].tolist())
        self.incomplete.add_counted(failures, len(rows))

    def _failure(self, key: str, bits: int) -> Failure:
        lacking = [name for at, name in enumerate(self._names) if not bits >> at & 1]
        return Failure(key, "config.missing_part", f"the sample has no {' and no '.join(lacking)}")


def _found(grouped: Grouped) -> npt.NDArray[np.int64]:
    """Return the patterns of each sample's parts, one bit for each; shape (samples,)."""
    bits = np.left_shift(1, grouped.rows.column("pattern").to_numpy().astype(np.int64))
    empty: npt.NDArray[np.int64] = np.zeros(0, np.int64)
    return np.bitwise_or.reduceat(bits, grouped.starts) if len(grouped.starts) else empty
