"""Collects the rows of a shard's index as Arrow batches, which do not stay in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

import pyarrow as pa

from larder.manifest.spool import Spool
from larder.shards.model import ROWS

PartRow = tuple[str, str | None, str | None, int | None, int, int]
"""Extension, source, etag, offset, length, crc32c of a part, as in `larder.shards.model.ROWS`."""

SampleRow = tuple[str, int, int, int | None]
"""Key, offset, length and label of a sample."""

_PARTS = ROWS.field("parts").type
_PART_FIELDS = list(_PARTS.value_type)
_SAMPLE_FIELDS = list(ROWS)[:-1]
_BATCH_ROWS = 2048


class IndexRows:
    """Rows of `larder.shards.model.ROWS` being collected, in columns."""

    def __init__(self) -> None:
        self._packed = Spool(ROWS)
        self._begin()

    def _begin(self) -> None:
        self._samples: list[list[object]] = [[] for _ in _SAMPLE_FIELDS]
        self._parts: list[list[object]] = [[] for _ in _PART_FIELDS]
        self._counts: list[int] = []

    def add(self, sample: SampleRow, parts: Sequence[PartRow]) -> None:
        for column, value in zip(self._samples, sample, strict=True):
            column.append(value)
        for part in parts:
            for column, value in zip(self._parts, part, strict=True):
                column.append(value)
        self._counts.append(len(parts))
        self._pack_if_many()

    def add_all(
        self,
        samples: Sequence[Iterable[object]],
        parts: Sequence[Iterable[object]],
        counts: Iterable[int],
    ) -> None:
        """Add several samples and their parts, as columns of `SampleRow` and `PartRow`.

        ``counts`` says how many of the parts each sample has.
        """
        for column, values in zip(self._samples, samples, strict=True):
            column += values
        for column, values in zip(self._parts, parts, strict=True):
            column += values
        self._counts += counts
        self._pack_if_many()

    def finish(self) -> Spool:
        self._pack()
        return self._packed

    def _pack_if_many(self) -> None:
        if len(self._counts) >= _BATCH_ROWS:
            self._pack()

    def _pack(self) -> None:
        parts = pa.StructArray.from_arrays(
            [_array(*pair) for pair in zip(self._parts, _PART_FIELDS, strict=True)],
            fields=_PART_FIELDS,
        )
        stops = pa.array(accumulate(self._counts, initial=0), pa.int32())
        columns = [_array(*pair) for pair in zip(self._samples, _SAMPLE_FIELDS, strict=True)]
        columns.append(pa.ListArray.from_arrays(stops, parts, type=_PARTS))
        self._packed.append(pa.RecordBatch.from_arrays(columns, schema=ROWS))
        self._begin()


def _array(values: Sequence[object], field: pa.Field) -> pa.Array:
    return pa.array(values, field.type)
