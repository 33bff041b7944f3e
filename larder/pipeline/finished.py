"""The finished shards of a segment, from the receipts, in the order of the plan.

A receipt says some kilobytes of each shard, of which a segment may have hundreds of thousands. So
that goes to a temporary file; in memory are the names of the shards and what the listing says of
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from larder.errors import FatalError
from larder.manifest.digest import canonical_json
from larder.manifest.spool import Spool
from larder.pipeline.job import Job, ManifestRef, listed
from larder.pipeline.manifests import fetched
from larder.pipeline.pack import planned_shards
from larder.pipeline.receipts import Receipt, Shard, plain_shard, read_receipts
from larder.pipeline.standing import is_noted
from larder.store.base import Store
from larder.units import format_count
from larder.versions import layout
from larder.versions.fields import to_plain

_ROWS = pa.schema(
    [
        pa.field("shard", pa.string(), nullable=False),
        pa.field("receipt", pa.string(), nullable=False),
        pa.field("first_row", pa.int64(), nullable=False),
    ]
)
"""A finished shard: JSON of what its receipt says of it and of the manifest with its rows."""

_Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FinishedShard:
    """A finished shard: ``index`` is its number in the plan, within its split.

    Its rows of `larder.manifest.schemas.SAMPLES` begin at ``first_row`` of the manifest ``rows``.
    """

    index: int
    shard: Shard
    rows: ManifestRef
    first_row: int


class Finished:
    """All shards in the order of the plan, including those whose samples were all left out.

    They are read again whenever they are iterated over. ``spool`` has rows of `_ROWS`, of which
    ``places`` has the one of each shard.
    """

    def __init__(self, spool: Spool, indexes: Sequence[int], places: _Places) -> None:
        self._spool = spool
        self._indexes = indexes
        self._places = places

    def __iter__(self) -> Iterator[FinishedShard]:
        indexes = iter(self._indexes)
        ends = np.flatnonzero(np.diff(self._places) != 1) + 1
        for run in np.split(self._places, ends) if len(self._places) else ():
            for batch in self._spool.read(int(run[0]), len(run)):
                for shard, receipt, first_row in zip(
                    *(column.to_pylist() for column in batch.columns), strict=True
                ):
                    yield FinishedShard(
                        next(indexes),
                        plain_shard(json.loads(shard)),
                        ManifestRef(**json.loads(receipt)),
                        first_row,
                    )


def finished_shards(root: Store, job: Job) -> Finished:
    """The shards of the segment that a job builds; ``run.failed``: a shard has no receipt."""
    with fetched(root, job.shard_plan) as path:
        plans = planned_shards(path)
        numbers = {(plan.split, plan.name): plan.index for plan in plans}
    places = {name: place for place, name in enumerate(numbers)}
    unsure = set(numbers)
    rows = np.full(len(numbers), -1, np.int64)
    spool = Spool(_ROWS)
    prefix = layout.shards_prefix(job.segment)
    infos = {info.key.removeprefix(prefix): info for info in listed(root, prefix)}
    for receipt in read_receipts(root, job.segment):
        if not unsure:
            break  # the others are for the same shards
        first_row = spool.num_rows
        spool.append(_batch(receipt))
        for row, shard in enumerate(receipt.shards, first_row):
            name = (shard.split, shard.name)
            if name in unsure:  # of several receipts, the one that matches the object
                rows[places[name]] = row
                if is_noted(shard, infos.get):
                    unsure.remove(name)
    if missing := [name for name, row in zip(numbers, rows.tolist(), strict=True) if row < 0]:
        message = (
            f"{format_count(len(missing), 'shard')} without a receipt, such as {missing[0][1]}"
        )
        raise FatalError("run.failed", message, where=root.url, hint="run again")
    return Finished(spool, list(numbers.values()), rows)


def _batch(receipt: Receipt) -> pa.RecordBatch:
    counts = [shard.samples for shard in receipt.shards]
    first_rows = np.cumsum([0, *counts])[: len(counts)]
    rows = canonical_json(to_plain(receipt.rows)).decode()
    columns = [
        pa.array([canonical_json(to_plain(shard)).decode() for shard in receipt.shards]),
        pa.array([rows] * len(counts), pa.string()),
        pa.array(first_rows, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ROWS)
