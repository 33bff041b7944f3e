"""Collecting the rows of a shard's index, column by column: a tenth of the memory of objects."""

from __future__ import annotations

from array import array

import pyarrow as pa

from larder.shards.model import ROWS

__all__ = ["RowColumns"]

_PARTS = ROWS.field("parts").type
_PART_FIELDS = list(_PARTS.value_type)


class RowColumns:
    """Rows of `larder.shards.model.ROWS` in the making: a sample's parts first, then the sample."""

    def __init__(self) -> None:
        self._keys: list[str] = []
        self._labels: list[int | None] = []
        self._offsets = array("q")
        self._lengths = array("q")
        self._part_stops = array("i", [0])
        self._exts: list[str] = []
        self._sources: list[str | None] = []
        self._part_offsets = array("q")
        self._part_lengths = array("q")
        self._crcs = array("I")

    def add_part(self, ext: str, source: str | None, offset: int, length: int, crc32c: int) -> None:
        """One more part of the sample that is added next."""
        self._exts.append(ext)
        self._sources.append(source)
        self._part_offsets.append(offset)
        self._part_lengths.append(length)
        self._crcs.append(crc32c)

    def add_sample(self, key: str, offset: int, length: int, label: int | None) -> None:
        """The sample of the parts added since the one before."""
        self._keys.append(key)
        self._offsets.append(offset)
        self._lengths.append(length)
        self._labels.append(label)
        self._part_stops.append(len(self._exts))

    def finish(self) -> pa.RecordBatch:
        """All rows, in the order in which they were added."""
        parts = pa.StructArray.from_arrays(
            [
                pa.array(self._exts, pa.string()),
                pa.array(self._sources, pa.string()),
                _integers(self._part_offsets, pa.int64()),
                _integers(self._part_lengths, pa.int64()),
                _integers(self._crcs, pa.uint32()),
            ],
            fields=_PART_FIELDS,
        )
        stops = _integers(self._part_stops, pa.int32())
        columns = [
            pa.array(self._keys, pa.string()),
            _integers(self._offsets, pa.int64()),
            _integers(self._lengths, pa.int64()),
            pa.array(self._labels, pa.int32()),
            pa.ListArray.from_arrays(stops, parts, type=_PARTS),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ROWS)


def _integers(values: array[int], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
