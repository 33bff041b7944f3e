"""The rows of a shard's index, collected while the shard is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

import pyarrow as pa

from larder.manifest.schemas import lists_of
from larder.manifest.spool import Spool
from larder.samples.naming import LABEL_EXT
from larder.shards.members import label_body, label_place
from larder.shards.model import ROWS, PlannedSample

PartRow = tuple[str, str | None, str | None, int | None, int, int]
"""Extension, source, etag, offset, length, crc32c of a part, as in `larder.shards.model.ROWS`."""

SampleRow = tuple[str, int | None, int | None, int | None]
"""Key, offset, length and label of a sample, as in `larder.shards.model.ROWS`."""

_PARTS = ROWS.field("parts").type
_PART_FIELDS = list(_PARTS.value_type)
_SAMPLE_FIELDS = list(ROWS)[:4]
_BATCH_ROWS = 2048


class IndexRows:
    def __init__(self) -> None:
        self._packed = Spool(ROWS)
        self._begin()

    def _begin(self) -> None:
        self._samples: list[list[object]] = [[] for _ in _SAMPLE_FIELDS]
        self._parts: list[list[object]] = [[] for _ in _PART_FIELDS]
        self._counts: list[int] = []
        self._bad: list[str] = []

    @property
    def count(self) -> int:
        return self._packed.num_rows + len(self._counts)

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

    def add_bad(self, sample: PlannedSample, message: str) -> None:
        """Add a sample that is left out; all samples of these rows are."""
        self._bad.append(message)
        parts = [
            (ext, key, etag, None, size_bytes, 0) for ext, key, size_bytes, etag in sample.parts
        ]
        self.add((sample.key, None, None, sample.label), parts)

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
        lists = lists_of(_PARTS, parts.__getitem__, offsets)
        text = pa.string()
        bad = pa.array(self._bad, text) if self._bad else pa.nulls(len(self._counts), text)
        columns = [*samples.values(), lists, bad]
        self._packed.append(pa.RecordBatch.from_arrays(columns, schema=ROWS))
        self._begin()


def _columns(values: Iterable[object], fields: Sequence[pa.Field]) -> dict[str, pa.Array]:
    pairs = zip(values, fields, strict=True)
    return {field.name: pa.array(column, field.type) for column, field in pairs}
