"""The rows of a shard's index: collected while it is written, and as rows of the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa

from larder.manifest.schemas import SAMPLES
from larder.manifest.spool import Spool
from larder.samples.naming import LABEL_EXT
from larder.shards.members import label_body, label_place
from larder.shards.model import ROWS, PlannedSample, ShardResult

PartRow = tuple[str, str | None, str | None, int | None, int, int]
"""Extension, source, etag, offset, length, crc32c of a part, as in `larder.shards.model.ROWS`."""

SampleRow = tuple[str, int, int, int | None]
"""Key, offset, length and label of a sample."""

_PARTS = ROWS.field("parts").type
_PART_FIELDS = list(_PARTS.value_type)
_SAMPLE_FIELDS = list(ROWS)[:-1]
_BATCH_ROWS = 2048


class IndexRows:
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

    def add_parts(
        self,
        sample: PlannedSample,
        place: tuple[int, int],
        offsets: Iterable[int | None],
        sizes: Iterable[int],
        checksums: Iterable[int],
    ) -> None:
        """Add a sample whose label is not stored as a part; ``place`` is its offset and length."""
        values = zip(sample.parts, offsets, sizes, checksums, strict=True)
        rows: list[PartRow] = [
            (ext, key, etag, offset, size_bytes, crc32c)
            for (ext, key, _, etag), offset, size_bytes, crc32c in values
        ]
        if sample.label is not None:
            text, crc32c = label_body(sample.label)
            row = (LABEL_EXT, None, None, None, len(text), crc32c)
            rows.insert(label_place(sample), row)
        self.add((sample.key, *place, sample.label), rows)

    def add_all(
        self,
        samples: Sequence[Iterable[object]],
        parts: Sequence[Iterable[object]],
        counts: Iterable[int],
    ) -> None:
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
