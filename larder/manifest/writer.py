"""Writes a manifest: Parquet, in row groups of a fixed length, under a temporary name at first."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from larder.disk import disk_errors, sha256_file

ROW_GROUP_ROWS = 65_536
"""Rows of a row group: a task that needs a range of rows reads at most one extra group."""

_BUFFER_ROWS = 4_096


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A manifest on the local disk; ``sha256`` is 64 hex digits."""

    path: Path
    rows: int
    bytes: int
    sha256: str


class ManifestWriter:
    """Writes a manifest incrementally; the file is invisible until it is complete.

    Use it as a context manager. The file gets its name when the block ends without an error, and
    ``file`` describes it from then on; otherwise nothing is left behind. At most ``row_group_rows``
    rows are held in memory.
    """

    def __init__(
        self, path: Path, schema: pa.Schema, *, row_group_rows: int = ROW_GROUP_ROWS
    ) -> None:
        self._path = path
        self._schema = schema
        self._row_group_rows = row_group_rows
        self._rows: list[Any] = []
        self._columns: list[list[pa.Array]] = [[] for _ in schema]
        self._buffered = 0
        self._written = 0
        self._file: ManifestFile | None = None

    @property
    def file(self) -> ManifestFile:
        if self._file is None:
            raise RuntimeError("the manifest is not finished")
        return self._file

    def __enter__(self) -> Self:
        with disk_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(
                dir=self._path.parent, prefix=f".{self._path.name[:100]}.", suffix=".tmp"
            )
            os.close(handle)
            self._temporary = Path(name)
            self._parquet = _writer(self._temporary, self._schema)
        return self

    def append(self, rows: Iterable[Sequence[Any] | Mapping[str, Any]]) -> None:
        """Add rows: tuples in the order of the schema, or mappings by column name."""
        for row in rows:
            self._rows.append(row)
            if len(self._rows) >= _BUFFER_ROWS:
                self._pack()

    def append_batch(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch that has the schema of the file."""
        if not batch.schema.equals(self._schema):
            raise TypeError(f"{self._path.name}: a batch has columns {batch.schema.names}")
        self._pack()
        self._take(batch)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Finish the file and give it its name, or remove it after an error."""
        try:
            if error is None:
                self._finish()
        finally:
            with suppress(Exception):  # such as a full disk: the first error is the relevant one
                self._parquet.close()
            self._temporary.unlink(missing_ok=True)

    def _pack(self) -> None:
        if self._rows:
            rows, self._rows = self._rows, []
            self._take(_batch(rows, self._schema))

    def _take(self, batch: pa.RecordBatch) -> None:
        while self._buffered + batch.num_rows >= self._row_group_rows:
            room = self._row_group_rows - self._buffered
            self._hold(batch.slice(0, room))
            self._flush()
            batch = batch.slice(room)
        self._hold(batch)

    def _hold(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            for chunks, column in zip(self._columns, batch.columns, strict=True):
                chunks.append(column)
            self._buffered += batch.num_rows

    def _flush(self) -> None:
        # One chunk per column: the ends of chunks would affect the pages.
        columns = list(map(_joined, self._columns))
        table = pa.Table.from_arrays(columns, schema=self._schema)
        del columns
        with disk_errors(self._path):
            self._parquet.write_table(table, row_group_size=self._row_group_rows)
        self._written += self._buffered
        self._buffered = 0

    def _finish(self) -> None:
        self._pack()
        if self._buffered:
            self._flush()
        with disk_errors(self._path):
            self._parquet.close()
            self._file = ManifestFile(
                path=self._path,
                rows=self._written,
                bytes=self._temporary.stat().st_size,
                sha256=sha256_file(self._temporary),
            )
            self._temporary.replace(self._path)


def _joined(chunks: list[pa.Array]) -> pa.Array:
    """One array of the chunks of a column, which are dropped."""
    joined = pa.concat_arrays(chunks)
    chunks.clear()
    return joined


def _writer(path: Path, schema: pa.Schema) -> Any:
    return pq.ParquetWriter(
        path, schema, version="2.6", compression="zstd", write_page_checksum=True
    )


def _batch(rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    if isinstance(rows[0], Mapping):
        return pa.RecordBatch.from_pylist(rows, schema=schema)
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
