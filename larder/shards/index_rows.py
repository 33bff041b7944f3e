"""The rows of a shard's index, collected while the shard is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import pyarrow as pa

from larder.manifest.schemas import lists_of
from larder.manifest.spool import Spool
from larder.samples.naming import LABEL_EXT
from larder.shards.members import label_body, label_place
from larder.shards.model import RECEIPT_ROWS, ROWS, PlannedSample, ShardResult

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
        """Add a sample whose label is not stored as a part; ``place`` is offset and length."""
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
        parts = _columns(self._parts, _PART_FIELDS)
        offsets = list(accumulate(self._counts, initial=0))
        samples = _columns(self._samples, _SAMPLE_FIELDS)
        columns = [*samples.values(), lists_of(_PARTS, parts.__getitem__, offsets)]
        self._packed.append(pa.RecordBatch.from_arrays(columns, schema=ROWS))
        self._begin()


def _columns(values: Iterable[object], fields: Sequence[pa.Field]) -> dict[str, pa.Array]:
    pairs = zip(values, fields, strict=True)
    return {field.name: pa.array(column, field.type) for column, field in pairs}


class SkippedRows:
    """Samples left out of a shard as bad, as rows of `RECEIPT_ROWS`."""

    def __init__(self) -> None:
        self._spool = Spool(RECEIPT_ROWS)
        self._rows: list[dict[str, object]] = []

    def add(self, sample: PlannedSample, message: str) -> None:
        parts = [
            {"ext": ext, "source": key, "etag": etag, "length": size_bytes, "crc32c": 0}
            for ext, key, size_bytes, etag in sample.parts
        ]
        self._rows.append(
            {"key": sample.key, "label": sample.label, "parts": parts, "bad": message}
        )
        if len(self._rows) >= _BATCH_ROWS:
            self._pack()

    @property
    def count(self) -> int:
        return self._spool.num_rows + len(self._rows)

    def finish(self) -> Spool:
        self._pack()
        return self._spool

    def _pack(self) -> None:
        if self._rows:
            self._spool.append(pa.RecordBatch.from_pylist(self._rows, schema=RECEIPT_ROWS))
            self._rows = []


def receipt_rows(result: ShardResult) -> Iterator[pa.RecordBatch]:
    """Yield rows of `RECEIPT_ROWS`: the samples of a shard, then the samples left out as bad."""
    for rows in result.samples.read():
        columns = [*rows.columns, pa.nulls(rows.num_rows, pa.string())]
        yield pa.RecordBatch.from_arrays(columns, schema=RECEIPT_ROWS)
    yield from result.skipped.read()
