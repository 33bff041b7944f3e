"""Rows of the samples manifest, from the result of writing a shard."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from larder.manifest.schemas import SAMPLES
from larder.shards.model import ShardResult

__all__ = ["numbered", "sample_rows"]


def sample_rows(result: ShardResult, segment: str) -> pa.RecordBatch:
    """Rows of `larder.manifest.schemas.SAMPLES` for the samples of one shard.

    Their ``id`` counts within the shard; `numbered` adds what comes before it in the split.

    Args:
        result: The shard; no rows if it was not written.
        segment: ID of its segment.
    """
    rows = result.samples
    count = rows.num_rows
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.arange(count, dtype=np.int64)),
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


def numbered(rows: pa.RecordBatch, first_id: int) -> pa.RecordBatch:
    """Rows of `sample_rows`, with ids that count from ``first_id``."""
    ids = pa.array(np.arange(first_id, first_id + rows.num_rows, dtype=np.int64))
    return rows.set_column(SAMPLES.get_field_index("id"), SAMPLES.field("id"), ids)


def _repeat(value: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), count)
