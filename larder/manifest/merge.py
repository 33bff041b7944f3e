"""Cuts sorted streams of rows at the same places, so that they can be joined piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from larder.manifest.query import Rows


def aligned(
    left: Rows, right: Rows, by: Sequence[str]
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Pairs of pieces of two streams: rows with equal keys are always in the same pair.

    Both have to be sorted by the columns ``by``, without nulls: numbers by value, strings by their
    UTF-8 bytes. At least one piece of a pair has rows. Memory is that of one batch of each; so of a
    key that a stream repeats from one batch to the next, only the rows of the first batch are sure
    to be in the same pair as others.
    """
    for one, other in aligned_all((left, right), by):  # noqa: UP028 - pairs, for mypy
        yield one, other


def aligned_all(streams: Sequence[Rows], by: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, ...]]:
    """The same for any number of streams."""
    sides = [_Side(rows, by) for rows in streams]
    while True:
        ends = [end for end in (side.last() for side in sides) if end is not None]
        if not ends:
            return
        bound = min(ends)
        yield tuple(side.take(bound) for side in sides)


def whole_keys(batches: Iterable[pa.RecordBatch], key: str) -> Iterator[pa.RecordBatch]:
    """The same rows, in batches of which none ends within the rows of a key, for `aligned`.

    Memory is that of one batch and of the rows with one key.
    """
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = pa.concat_batches([*held, batch])
        last = pc.index(rows.column(key), rows.column(key)[-1]).as_py()
        held = [rows.slice(last)]
        if last:
            yield rows.slice(0, last)
    yield from held


class _Side:
    """One of the streams, with the batch that is being cut."""

    def __init__(self, rows: Rows, by: Sequence[str]) -> None:
        self._batches = iter(rows.batches)
        self._by = by
        self._empty = pa.RecordBatch.from_pylist([], schema=rows.schema)
        self._batch = self._empty

    def last(self) -> tuple[Any, ...] | None:
        """The key of the last row of the current batch; None at the end of the stream."""
        while not self._batch.num_rows:
            found = next(self._batches, None)
            if found is None:
                return None
            self._batch = found
        return self._key(self._batch.num_rows - 1)

    def take(self, bound: tuple[Any, ...]) -> pa.RecordBatch:
        """The rows of the current batch up to a key, and nothing of later batches."""
        first, end = 0, self._batch.num_rows
        while first < end:
            middle = (first + end) // 2
            if self._key(middle) <= bound:
                first = middle + 1
            else:
                end = middle
        taken, self._batch = self._batch.slice(0, first), self._batch.slice(first)
        return taken

    def _key(self, row: int) -> tuple[Any, ...]:
        # Python orders strings by code points, which is the order of their UTF-8 bytes.
        return tuple(self._batch.column(name)[row].as_py() for name in self._by)
