"""Manifests as Parquet files: written as a stream, read by ranges of rows.

Row groups have a fixed length, independent of the batches that arrive. So the same rows give the
same bytes with the same pyarrow. Every page has a checksum, which is verified when the page is
read.
"""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

from larder.disk import disk_errors, sha256_file
from larder.errors import DamageError
from larder.manifest.pages import check_footer, check_pages
from larder.manifest.schemas import RULES
from larder.names import MAX_NUMBER

ROW_GROUP_ROWS = 65_536
"""Rows of a row group: a task that needs a range of rows reads at most one extra group."""

_BUFFER_ROWS = 4_096


class ManifestFile(NamedTuple):
    """A manifest on the local disk; ``sha256`` is 64 hex digits."""

    path: Path
    rows: int
    bytes: int
    sha256: str


class ManifestWriter:
    """A context manager that writes a manifest incrementally.

    The file gets its name when the block ends without an error. After an error nothing is left
    behind. At most ``row_group_rows`` rows are held in memory.

    Attributes:
        file: The manifest, once the block has ended.
    """

    file: ManifestFile

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

    def __enter__(self) -> Self:
        with disk_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(
                dir=self._path.parent, prefix=f".{self._path.name[:100]}.", suffix=".tmp"
            )
            os.close(handle)
            self._temporary = Path(name)
            self._parquet = pq.ParquetWriter(
                self._temporary,
                self._schema,
                version="2.6",
                compression="zstd",
                write_page_checksum=True,
            )
        return self

    def append(self, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows, each with its values in the order of the schema."""
        for row in rows:
            self._rows.append(row)
            if len(self._rows) >= _BUFFER_ROWS:
                self._pack()

    def append_batch(self, batch: pa.RecordBatch) -> None:
        if not batch.schema.equals(self._schema):
            raise TypeError(f"{self._path.name}: a batch has columns {batch.schema.names}")
        self._pack()
        self._take(batch)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Finish the file and give it its name, or remove it after an error."""
        try:
            if kind is None:
                self._finish()
        finally:
            with suppress(Exception):  # such as a full disk: the first error is the one to report
                self._parquet.close()
            self._temporary.unlink(missing_ok=True)

    def _pack(self) -> None:
        if self._rows:
            columns = zip(*self._rows, strict=True)
            self._rows = []
            typed = zip(columns, self._schema, strict=True)
            arrays = [pa.array(column, field.type) for column, field in typed]
            self._take(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

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
            self.file = ManifestFile(
                path=self._path,
                rows=self._written,
                bytes=self._temporary.stat().st_size,
                sha256=sha256_file(self._temporary),
            )
            self._temporary.replace(self._path)


def _joined(chunks: list[pa.Array]) -> pa.Array:
    """Join the chunks of a column into one array, and drop the chunks."""
    joined = pa.concat_arrays(chunks)
    chunks.clear()
    return joined


BATCH_ROWS = 16_384
"""Maximum number of rows of a batch that is read."""

_BUFFER_BYTES = 1 << 16


def write_manifest(
    path: Path,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    row_group_rows: int = ROW_GROUP_ROWS,
) -> ManifestFile:
    """Write a manifest as `ManifestWriter` does, from a stream of batches."""
    with ManifestWriter(path, schema, row_group_rows=row_group_rows) as writer:
        for batch in batches:
            writer.append_batch(batch)
    return writer.file


def read_manifest(
    path: Path,
    schema: pa.Schema,
    *,
    columns: Sequence[str] | None = None,
    first_row: int = 0,
    rows: int | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Read a manifest, or a range of its rows, as a stream of batches.

    Only the row groups with these rows are read, one at a time.

    Raises:
        DamageError: ``damage.manifest``: the file is missing or damaged, or has other columns or
            too few rows.
    """
    with _damage(path), open(path, "rb") as raw, _opened(path, raw) as file:
        if not file.schema_arrow.equals(schema):
            present = ", ".join(file.schema_arrow.names)
            raise _damaged(path, f"the manifest's columns are {present}")
        starts = _group_starts(path, file.metadata)
        last_row = starts[-1] if rows is None else first_row + rows
        if max(first_row, last_row) > starts[-1]:
            message = f"the manifest has {starts[-1]:,} rows, not {max(first_row, last_row):,}"
            raise _damaged(path, message)
        first_group = bisect_right(starts, first_row) - 1
        groups = list(range(first_group, bisect_left(starts, last_row)))
        check_pages(raw, groups)
        names = list(columns) if columns is not None else schema.names
        row = starts[first_group]
        missing = last_row - first_row
        # In this thread: memory that other threads free is not returned to the system.
        for batch in file.iter_batches(
            batch_size=batch_rows, row_groups=groups, columns=names, use_threads=False
        ):
            begin, end = max(first_row - row, 0), min(last_row - row, batch.num_rows)
            row += batch.num_rows
            if begin < end:
                wanted = batch.select(names).slice(begin, end - begin)
                wanted.validate(full=True)
                if {"split", "name"} <= set(schema.names):  # manifests of sources have names, too
                    _check_files(path, wanted)
                missing -= wanted.num_rows
                yield wanted
                if not missing:
                    return  # the rest of the row group is not decoded
    if missing:
        raise _damaged(path, f"{missing:,} rows of the manifest are missing")


def _check_files(path: Path, batch: pa.RecordBatch) -> None:
    """Refuse invalid names and numbers in rows that describe files."""
    import pyarrow.compute as pc  # a process that copies needs none of its functions

    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in RULES:
            right = pc.match_substring_regex(column, f"^(?:{RULES[name].regex})$")
        elif pa.types.is_integer(column.type):
            right = pc.and_(pc.greater_equal(column, 0), pc.less(column, MAX_NUMBER))
        else:
            continue
        if not pc.all(right, min_count=0).as_py():
            raise _damaged(path, f"the manifest has an invalid {name}")


def _opened(path: Path, raw: BinaryIO) -> pq.ParquetFile:
    check_footer(raw)
    # Prebuffering is meant for remote stores, and would keep all bytes in memory until the end.
    # With a buffer, the columns of a row group are read in pieces.
    return pq.ParquetFile(
        path, page_checksum_verification=True, pre_buffer=False, buffer_size=_BUFFER_BYTES
    )


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(path, f"the manifest cannot be read: {error}") from error


def _damaged(path: Path, message: str) -> DamageError:
    return DamageError("damage.manifest", message, where=str(path))


def _group_starts(path: Path, metadata: Any) -> list[int]:
    """Return the first row of each row group, and the number of rows."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    starts = [0, *accumulate(group.num_rows for group in groups)]
    if starts[-1] != metadata.num_rows:
        raise _damaged(path, "the manifest's row groups are inconsistent")
    return starts
