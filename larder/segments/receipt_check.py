"""Compares the receipt of a shard with the order of the samples, whose digest the run knows.

A receipt may be that of a run that was stopped, and no document has its digest: it saves work and
proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.segments.receipts import FinishedShard
from larder.segments.shard_index import ShardIndex
from larder.shards.formats.base import ShardFormat
from larder.shards.model import ShardPlan

_MOST_CLASSES = 1 << 31

ORDER_COLUMNS = ["split", "key", "label", "parts", "packed"]


class PlannedRows:
    """The rows of a sample order, shard by shard; ``batches`` have `ORDER_COLUMNS`."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._rest: list[pa.RecordBatch] = []

    def take(self, rows: int) -> pa.Table:
        """The next rows; fewer at the end of the order."""
        taken: list[pa.RecordBatch] = []
        while rows:
            batch = self._rest.pop() if self._rest else next(self._batches, None)
            if batch is None:
                break
            taken.append(batch.slice(0, rows))
            if batch.num_rows > rows:
                self._rest.append(batch.slice(rows))
            rows -= taken[-1].num_rows
        return pa.Table.from_batches(taken)


def receipt_problem(
    plan: ShardPlan,
    planned: pa.Table,
    shard: FinishedShard,
    rows: pa.Table,
    shard_format: ShardFormat,
    *,
    transformed: bool,
) -> str:
    """Say why a shard with these rows cannot be the planned one; empty if it can.

    ``planned`` are the samples of the order, ``rows`` are by `larder.shards.model.RECEIPT_ROWS`.
    With ``transformed``, images are stored with other lengths than their objects have.
    """
    samples = rows.filter(pc.is_null(rows.column("bad")))
    names = list(shard_format.file_names(plan.name)) if samples.num_rows else []
    described = shard.split, shard.name, shard.samples, [file.name for file in shard.files]
    if described != (plan.split, plan.name, samples.num_rows, names):
        return "it is of another shard, or of another number of samples"
    keys = planned.column("key").combine_chunks()
    places = pc.index_in(rows.column("key"), value_set=keys)
    numbers = places.fill_null(-1).to_numpy()
    of_samples = numbers[rows.column("bad").is_null().to_numpy()]
    if (
        not np.array_equal(np.sort(numbers), np.arange(plan.rows))
        or (np.diff(of_samples) < 0).any()
    ):
        return "its samples are not those that are planned for its shard, in their order"
    wanted = planned.take(places)
    if not rows.column("label").equals(wanted.column("label")):
        return "its labels are not those that are planned"
    problem = _parts_problem(wanted, rows, transformed=transformed)
    return problem or (_places_problem(shard, samples, shard_format) if samples.num_rows else "")


def _places_problem(shard: FinishedShard, samples: pa.Table, shard_format: ShardFormat) -> str:
    index = ShardIndex(samples.combine_chunks().to_batches()[0])
    problem = index.places_problem(shard.files[0].bytes, shard_format)
    return problem or index.label_problems(_MOST_CLASSES)[0]


def _parts_problem(wanted: pa.Table, rows: pa.Table, *, transformed: bool) -> str:
    """Compare the parts of samples with their planned objects; labels have none."""
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
