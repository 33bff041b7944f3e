"""Rows of the manifest of samples, from what came of a shard."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from larder.manifest.schemas import SAMPLES
from larder.shards.model import ShardResult

__all__ = ["sample_rows"]

_PART_FIELDS = list(SAMPLES.field("parts").type.value_type)


def sample_rows(result: ShardResult, segment: str, first_id: int) -> pa.RecordBatch:
    """Rows of `larder.manifest.schemas.SAMPLES` for the samples of one shard.

    Args:
        result: The shard; one that was not written gives no rows.
        segment: ID of its segment.
        first_id: Number of its first sample within the split. A shard that follows begins at
            ``first_id + result.samples.num_rows``.
    """
    rows = result.samples
    count = rows.num_rows
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.arange(first_id, first_id + count, dtype=np.int64)),
            _repeat(result.split, count),
            rows.column("key"),
            _repeat(segment, count),
            _repeat(result.name, count),
            rows.column("offset"),
            rows.column("length"),
            rows.column("label"),
            _parts(rows.column("parts")),
        ],
        schema=SAMPLES,
    )


def _parts(parts: pa.Array) -> pa.Array:
    """The parts without their sources."""
    ext, _, offset, length, crc32c = parts.flatten().flatten()
    structs = pa.StructArray.from_arrays([ext, offset, length, crc32c], fields=_PART_FIELDS)
    starts = parts.offsets.to_numpy()
    stops = pa.array(starts - starts[0])
    return pa.ListArray.from_arrays(stops, structs, type=SAMPLES.field("parts").type)


def _repeat(value: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), count)
