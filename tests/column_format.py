"""A shard format for tests that differs from tar in every respect.

Two files per shard, whose names contain the number of shards: ``NAME.cols`` has one compressed
column for each extension, ``NAME.rows`` says what is where. So sizes are not known in advance,
no part is stored unchanged, a label is a number in a column, and the index counts rows.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from larder.config.shape import DEFAULTS, FormatOptions
from larder.errors import DamageError
from larder.manifest.spool import Spool
from larder.samples.indexed import IndexedPart, IndexedSample, check_part, part_place
from larder.samples.naming import LABEL_EXT
from larder.shards.formats import FORMATS
from larder.shards.formats.base import ShardFormat, ShardWriter
from larder.shards.model import PlannedSample, ShardPlan, label_bytes
from larder.shards.output import HashedOutput
from larder.shards.reading.fetch import Body
from larder.shards.sizes import Sizes, sum_members
from larder.store import object_url
from larder.store.base import Closing, Store

NAME = "columns"


class Columns(ShardFormat):
    """``shards.format: columns``, inside `registered`."""

    suffix = ".cols"
    sizes_known = False
    counted = True

    def __init__(self, options: FormatOptions = DEFAULTS) -> None:
        self.options = options

    def sample_sizes(self, batch: pa.RecordBatch) -> Sizes:
        sizes = sum_members(batch, lambda keys, exts, sizes: sizes)
        return np.maximum(sizes, 1)

    def file_names(self, name: str) -> Sequence[str]:
        return name, name.removesuffix(".cols") + ".rows"

    def writer(self, outputs: Sequence[HashedOutput], plan: ShardPlan) -> ColumnsWriter:
        return ColumnsWriter(*outputs)

    def open(self, store: Store, key: str) -> ColumnsReader:
        return ColumnsReader(store, *self.file_names(key))


class ColumnsWriter(ShardWriter):
    def __init__(self, columns: HashedOutput, rows: HashedOutput) -> None:
        super().__init__(columns)
        self._row_output = rows
        self._columns: dict[str, list[bytes | None]] = defaultdict(list)
        self._labels: list[int | None] = []

    def append(self, sample: PlannedSample, bodies: Sequence[Body]) -> None:
        row = len(self._labels)
        data, checksums = zip(*bodies, strict=True)
        offsets = [None] * len(data)
        self._rows.add_parts(sample, (row, 1), offsets, map(len, data), checksums)
        self._labels.append(sample.label)
        for part, body in zip(sample.parts, bodies, strict=True):
            column = self._columns[part.ext]
            column += [None] * (row - len(column))
            column.append(body.data)

    def finish(self) -> Spool:
        lengths = {}
        for ext, column in sorted(self._columns.items()):
            packed = zlib.compress(b"".join(filter(None, column)))
            self._put(packed)
            lengths[ext] = len(packed), [len(value) if value else 0 for value in column]
        rows = json.dumps({"columns": lengths, "labels": self._labels}).encode()
        self._row_output.append([rows], len(rows))
        return super().finish()


class ColumnsReader(Closing):
    def __init__(self, store: Store, columns_key: str, rows_key: str) -> None:
        self.url = object_url(store.url, columns_key)
        self._columns: dict[str, list[bytes]] = {}
        data = store.get(columns_key)
        try:
            found: dict[str, Any] = json.loads(store.get(rows_key))
            self._labels = found["labels"]
            for ext, (size_bytes, lengths) in found["columns"].items():
                column, data = zlib.decompress(data[:size_bytes]), data[size_bytes:]
                ends = pairwise(accumulate(lengths, initial=0))
                self._columns[ext] = [column[start:stop] for start, stop in ends]
        except (zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamageError("damage.record", f"no columns: {error}", where=self.url) from None

    def read(
        self, sample: IndexedSample, parts: Sequence[IndexedPart] | None = None
    ) -> dict[str, bytes]:
        found = {}
        for part in sample.parts if parts is None else parts:
            where = part_place(self.url, sample, part.ext)
            try:
                label = self._labels[sample.offset] if part.ext == LABEL_EXT else None
                value = label_bytes(label) if label is not None else None
                data = value or self._columns[part.ext][sample.offset]
            except (KeyError, IndexError, TypeError):
                message = "the index names what is not there"
                raise DamageError("damage.manifest", message, where=where) from None
            found[part.ext] = check_part(part, data, sample, self.url)
        return found

    def close(self) -> None:
        """Nothing is open."""


@contextmanager
def registered() -> Iterator[None]:
    """Within, it is one of the formats."""
    with mock.patch.dict(FORMATS, {NAME: Columns}):
        yield
