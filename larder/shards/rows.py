"""Collects the rows of a shard's index as Arrow batches, which do not stay in memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pyarrow as pa

from larder.manifest.spool import Spool
from larder.shards.model import ROWS

__all__ = ["IndexRows", "PartRow", "SampleRow"]

PartRow = tuple[str, str | None, str | None, int | None, int, int]
"""Extension, source, etag, offset, length, crc32c of a part, as in `larder.shards.model.ROWS`."""

SampleRow = tuple[str, int, int, int | None]
"""Key, offset, length and label of a sample."""

_PARTS = ROWS.field("parts").type
_PART_FIELDS = list(_PARTS.value_type)
_BATCH_ROWS = 2048


class IndexRows:
    """Rows of `larder.shards.model.ROWS` being collected."""

    def __init__(self) -> None:
        self._packed = Spool(ROWS)
        self._samples: list[SampleRow] = []
        self._parts: list[PartRow] = []
        self._counts: list[int] = []

    def add(self, sample: SampleRow, parts: Sequence[PartRow]) -> None:
        """Add one sample and its parts."""
        self._samples.append(sample)
        self._parts += parts
        self._counts.append(len(parts))
        if len(self._samples) == _BATCH_ROWS:
            self._pack()

    def finish(self) -> Spool:
        """All rows, in the order in which they were added."""
        if self._samples:
            self._pack()
        return self._packed

    def _pack(self) -> None:
        part_columns = zip(*self._parts, strict=True) if self._parts else [()] * len(_PART_FIELDS)
        parts = pa.StructArray.from_arrays(
            [_array(*pair) for pair in zip(part_columns, _PART_FIELDS, strict=True)],
            fields=_PART_FIELDS,
        )
        stops = pa.array(accumulate(self._counts, initial=0), pa.int32())
        sample_columns = zip(*self._samples, strict=True)
        columns = [_array(*pair) for pair in zip(sample_columns, list(ROWS)[:-1], strict=True)]
        columns.append(pa.ListArray.from_arrays(stops, parts, type=_PARTS))
        self._packed.append(pa.RecordBatch.from_arrays(columns, schema=ROWS))
        self._samples, self._parts, self._counts = [], [], []


def _array(values: Sequence[object], field: pa.Field) -> pa.Array:
    return pa.array(values, field.type)
