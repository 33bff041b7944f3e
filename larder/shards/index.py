"""Rows of the samples manifest, from the result of writing a shard."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from larder.manifest.schemas import SAMPLES
from larder.shards.model import ShardResult


def sample_rows(result: ShardResult, segment: str) -> Iterator[pa.RecordBatch]:
    """Rows of `larder.manifest.schemas.SAMPLES` for the samples of one shard, none if not written.

    Their ``id`` counts within the shard; `numbered` adds what comes before it in the split.
    """
    first_id = 0
    for rows in result.samples.read():
        count = rows.num_rows
        yield pa.RecordBatch.from_arrays(
            [
                _ids(first_id, count),
                _repeat(result.split, count),
                rows.column("key"),
                _repeat(segment, count),
                _repeat(result.name, count),
                rows.column("offset"),
                rows.column("length"),
                rows.column("label"),
                rows.column("parts"),
            ],
            schema=SAMPLES,
        )
        first_id += count


def numbered(rows: pa.RecordBatch, first_id: int) -> pa.RecordBatch:
    """Rows of `sample_rows`, with ids that count from ``first_id``."""
    ids = _ids(first_id, rows.num_rows)
    return rows.set_column(SAMPLES.get_field_index("id"), SAMPLES.field("id"), ids)


def _ids(first_id: int, count: int) -> pa.Array:
    return pa.array(np.arange(first_id, first_id + count, dtype=np.int64))


def _repeat(value: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), count)
