"""Compares the receipt of a shard with the order of the samples, whose digest the run knows.

A receipt may come from a run that was stopped, and no document has its digest. It saves work and
proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.segments.index_check import IndexedColumns, Ranges
from larder.segments.shard_receipts import FinishedShard, Receipt
from larder.shards.formats.format_interface import ShardFormat
from larder.shards.model import ROWS, ShardPlan

_MOST_CLASSES = 1 << 31

_OTHER_SAMPLES = "its samples are not those that are planned for its shard, in their order"

ORDER_COLUMNS = ["split", "key", "label", "parts", "packed"]


class PlannedRows:
    """The rows of a sample order, shard by shard; ``batches`` have `ORDER_COLUMNS`."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._rest: list[pa.RecordBatch] = []

    def take(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the next rows; fewer at the end of the order."""
        while rows:
            batch = self._rest.pop() if self._rest else next(self._batches, None)
            if batch is None:
                return
            if batch.num_rows > rows:
                self._rest.append(batch.slice(rows))
            taken = batch.slice(0, rows)
            rows -= taken.num_rows
            if taken.num_rows:
                yield taken


def receipt_problem(
    plan: ShardPlan,
    planned: Iterable[pa.RecordBatch],
    receipt: Receipt,
    shard_format: ShardFormat,
    *,
    transformed: bool,
) -> str:
    """Say why a shard with this receipt cannot be the planned one; empty if it can.

    ``planned`` are the samples of the order. With ``transformed``, the lengths of stored images
    differ from the lengths of their objects. Memory: a batch of rows, the bad rows, and the places
    of parts.
    """
    shard = receipt.shard
    bad = pa.Table.from_batches(receipt.rows(first_row=shard.samples), ROWS)
    names = list(shard_format.file_names(plan.name)) if shard.samples else []
    described = shard.split, shard.name, [file.name for file in shard.files if not file.kind]
    counted = shard.samples + bad.num_rows, bad.column("bad").null_count
    if described != (plan.split, plan.name, names) or counted != (plan.rows, 0):
        return "it is of another shard, or of another number of samples"
    check = _ReceiptSamples(shard, receipt.samples(), shard_format, transformed=transformed)
    bad_keys, planned_bad = bad.column("key").combine_chunks(), list[pa.RecordBatch]()
    for batch in planned:
        is_bad = pc.is_in(batch.column("key"), value_set=bad_keys)
        planned_bad.append(batch.filter(is_bad))
        if problem := check.problem(batch.filter(pc.invert(is_bad))):
            return problem
    if (problem := check.rest_problem()) or not planned_bad:
        return problem
    wanted = pa.Table.from_batches(planned_bad)
    places = pc.index_in(bad_keys, value_set=wanted.column("key").combine_chunks())
    if not np.array_equal(np.sort(places.fill_null(-1).to_numpy()), np.arange(wanted.num_rows)):
        return _OTHER_SAMPLES
    return _rows_problem(wanted.take(places), bad, transformed=transformed)


class _ReceiptSamples:
    """The samples of a receipt, which are compared with the planned samples batch by batch."""

    def __init__(
        self,
        shard: FinishedShard,
        batches: Iterable[pa.RecordBatch],
        shard_format: ShardFormat,
        *,
        transformed: bool,
    ) -> None:
        self._shard = shard
        self._rows = PlannedRows(batches)
        self._format = shard_format
        self._transformed = transformed
        self._end = self._count = 0
        self._placed: list[Ranges] = []

    def problem(self, wanted: pa.RecordBatch) -> str:
        for rows in self._rows.take(wanted.num_rows):
            part, wanted = wanted.slice(0, rows.num_rows), wanted.slice(rows.num_rows)
            if not rows.column("key").equals(part.column("key")):
                return _OTHER_SAMPLES
            tables = (pa.Table.from_batches([each]) for each in (part, rows))
            problem = _rows_problem(*tables, transformed=self._transformed)
            if problem or (problem := self._places_problem(rows)):
                return problem
        return _OTHER_SAMPLES if wanted.num_rows else ""

    def rest_problem(self) -> str:
        """Say so if not all samples were planned, or parts of two batches overlap."""
        if self._count != self._shard.samples or any(self._rows.take(1)):
            return _OTHER_SAMPLES
        if not self._placed:
            return ""
        offsets, lengths = map(np.concatenate, zip(*self._placed, strict=True))
        order = np.lexsort((lengths, offsets))
        overlap = (offsets + lengths)[order[:-1]] > offsets[order[1:]]
        return "parts of its samples overlap" if overlap.any() else ""

    def _places_problem(self, rows: pa.RecordBatch) -> str:
        index, size_bytes, first = IndexedColumns(rows), self._shard.files[0].bytes, self._count
        self._count += rows.num_rows
        is_last = self._count == self._shard.samples
        problem = index.places_problem(
            size_bytes, self._format, begin=self._end, first=first, last=is_last
        )
        self._end = index.end(self._end)
        if not self._format.framed:  # a frame leaves a part one place
            self._placed.append(index.ranges())
        return problem or index.label_problems(_MOST_CLASSES)[0]


def _rows_problem(wanted: pa.Table, rows: pa.Table, *, transformed: bool) -> str:
    """Compare labels, and parts with their planned objects; parts of labels have none."""
    if not rows.column("label").equals(wanted.column("label")):
        return "its labels are not those that are planned"
    lists, objects = (table.column("parts").combine_chunks() for table in (rows, wanted))
    parts, planned = lists.flatten(), objects.flatten()
    kept = parts.field("source").is_valid()
    owners = _owners(lists)[kept.to_numpy(zero_copy_only=False)]
    parts = parts.filter(kept)
    columns = {"ext": "ext", "source": "key", "etag": "etag"}
    same = np.array_equal(owners, _owners(objects)) and all(
        parts.field(name).equals(planned.field(of_object)) for name, of_object in columns.items()
    )
    if not same:
        return "its parts are not those of the planned objects"
    exact = wanted.column("packed").is_null().to_numpy()[owners] & (not transformed)
    differ = parts.field("length").to_numpy() != planned.field("size_bytes").to_numpy()
    return "a part has another length than its object" if (exact & differ).any() else ""


def _owners(lists: pa.ListArray) -> np.ndarray:
    return np.repeat(np.arange(len(lists)), pc.list_value_length(lists).to_numpy())
