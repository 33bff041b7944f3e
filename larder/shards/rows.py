"""Collects the rows of a shard's index as Arrow batches: a tenth of the memory of objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from larder.shards.model import ROWS

__all__ = ["Column", "IndexRows", "PartRow", "SampleRow"]

PartRow = tuple[str, str | None, str | None, int | None, int, int]
"""Extension, source, etag, offset, length, crc32c of a part, as in `larder.shards.model.ROWS`."""

SampleRow = tuple[str, int, int, int | None]
"""Key, offset, length and label of a sample."""

Column: TypeAlias = Sequence[object] | npt.NDArray[Any] | pa.Array
"""The values of one field, of several samples or parts."""

_PARTS = ROWS.field("parts").type
_PART_FIELDS = list(_PARTS.value_type)
_BATCH_ROWS = 2048


class IndexRows:
    """Rows of `larder.shards.model.ROWS` being collected, by samples or by columns of them."""

    def __init__(self) -> None:
        self._batches = [pa.RecordBatch.from_pylist([], schema=ROWS)]
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

    def add_columns(
        self, samples: Iterable[Column], parts: Iterable[Column], counts: npt.NDArray[np.int64]
    ) -> None:
        """Add several samples and their parts.

        Args:
            samples: The columns of a `SampleRow`.
            parts: The columns of a `PartRow`, for the parts of all these samples.
            counts: How many parts each sample has.
        """
        self._pack()
        self._put(samples, parts, counts)

    def finish(self) -> pa.RecordBatch:
        """All rows, in the order in which they were added."""
        self._pack()
        return pa.concat_batches(self._batches)

    def _pack(self) -> None:
        """Make a batch of the rows that were added one by one."""
        if self._samples:
            parts = zip(*self._parts, strict=True) if self._parts else [()] * len(_PART_FIELDS)
            self._put(zip(*self._samples, strict=True), parts, self._counts)
            self._samples, self._parts, self._counts = [], [], []

    def _put(
        self,
        samples: Iterable[Column],
        parts: Iterable[Column],
        counts: Sequence[int] | npt.NDArray[np.int64],
    ) -> None:
        entries = pa.StructArray.from_arrays(
            [_array(*pair) for pair in zip(parts, _PART_FIELDS, strict=True)], fields=_PART_FIELDS
        )
        stops = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
        columns = [_array(*pair) for pair in zip(samples, list(ROWS)[:-1], strict=True)]
        columns.append(pa.ListArray.from_arrays(stops, entries, type=_PARTS))
        self._batches.append(pa.RecordBatch.from_arrays(columns, schema=ROWS))


def _array(values: Column, field: pa.Field) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values, field.type)
