"""``source.rows``: which objects are tables, and how their rows become objects."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Executor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.models.source import FORMATS, RowFormat, Rows
from larder.manifest.extents import in_object, in_own
from larder.source.expand.containers import (
    ContainerWriter,
    Indexes,
    container_name,
    identity,
)
from larder.source.expand.expanded import Container, Expansion
from larder.source.expand.line_rows import index_lines
from larder.source.expand.row_values import Named
from larder.source.expand.table_rows import write_csv_rows, write_parquet_rows
from larder.source.selection import KeyRule
from larder.store.base import ObjectInfo, Readable

_Flags = npt.NDArray[np.bool_]


def row_expansion(
    rows: Rows,
    others: Collection[str],
    label: str | None,
    source: Readable,
    indexes: Indexes,
) -> Expansion:
    """How tables are expanded.

    ``others`` are never tables, whatever their keys look like: label files and annotation files.
    ``label`` is the column with the class of each row, if there is one.
    """

    def indexed(info: ObjectInfo, path: Path, executor: Executor) -> Container:
        del executor  # a table is read from front to back
        table = _Table(rows, label, info)
        read = not indexes.fetch(table.name, path, own=table.rewritten)
        if read:
            with indexes.writer(table.name, path, own=table.rewritten) as writer:
                table.read(source, writer)
        return Container(info, table.end, last_counts=False, filtered=False, read=read)

    def matches(keys: pa.Array) -> _Flags:
        taken = pc.is_in(keys, pa.array(sorted(others), pa.string()))
        found = _matching(rows, keys)
        found &= ~taken.to_numpy(zero_copy_only=False)
        return found

    return Expansion(matches, indexed, lambda key: None)


def _matching(rows: Rows, keys: pa.Array) -> _Flags:
    if rows.files is not None:
        return KeyRule(rows.files)(keys)
    ends = [end for end, kind in FORMATS.items() if rows.format in ("auto", kind)]
    found = np.zeros(len(keys), np.bool_)
    for end in ends:
        found |= pc.ends_with(keys, end, ignore_case=True).to_numpy(zero_copy_only=False)
    return found


class _Table:
    """An object whose rows are samples: ``rewritten`` into a container of Larder's own, or ranges.

    ``end`` is the end of the etags of its rows.
    """

    def __init__(self, rows: Rows, label: str | None, info: ObjectInfo) -> None:
        self._rows = rows
        self._label = label
        self._info = info
        self._format = _format(rows, info.key)
        self._delimiter = rows.delimiter or ("\t" if info.key.lower().endswith(".tsv") else ",")
        self.rewritten = self._format in ("csv", "parquet")
        made_from = [*identity(info), self._format, rows.key]
        if self._format == "csv":
            made_from.append(self._delimiter)
        if self._format == "parquet":
            made_from.append(dict(rows.columns))
        if label is not None:
            made_from.append(["label", label])
        self.name = container_name("rows" if self.rewritten else "lines", *made_from)
        self.end = in_own(self.name) if self.rewritten else in_object(info.key, info.etag)

    def read(self, source: Readable, writer: ContainerWriter) -> None:
        info, named = self._info, Named(self._rows.key, self._label)
        if self._format == "csv":
            write_csv_rows(source, info, writer, delimiter=self._delimiter, named=named)
        elif self._format == "parquet":
            columns = self._rows.columns
            write_parquet_rows(source, info, writer, columns=columns, named=named)
        else:
            is_json = self._format == "jsonl"
            index_lines(source, info, writer, is_json=is_json, named=named)


def _format(rows: Rows, key: str) -> RowFormat:
    if rows.format != "auto":
        return rows.format
    return next(kind for end, kind in FORMATS.items() if key.lower().endswith(end))
