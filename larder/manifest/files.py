"""Manifests as Parquet files: written as a stream, read by ranges of rows.

Rows are cut into row groups of a fixed length however they arrive, so that the same rows give the
same bytes with the same pyarrow. Every page has a checksum, which is verified when it is read.
"""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from larder.errors import ConfigError, DamageError, StoreError

__all__ = [
    "BATCH_ROWS",
    "ROW_GROUP_ROWS",
    "ManifestFile",
    "ManifestWriter",
    "disk_errors",
    "read_manifest",
    "sha256_file",
    "write_manifest",
]

ROW_GROUP_ROWS = 65_536
"""Rows of a row group: a task that wants one range of rows reads at most one group too many."""

BATCH_ROWS = 16_384
"""Rows of a batch that is read."""

_FULL = {errno.ENOSPC, errno.EDQUOT}
_BUFFER_ROWS = 4_096


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A manifest as it lies on the disk.

    Attributes:
        path: Where it is.
        rows: Its rows.
        bytes: Its size, bytes.
        sha256: Of the file, 64 hex digits.
    """

    path: Path
    rows: int
    bytes: int
    sha256: str


class ManifestWriter:
    """Writes a manifest bit by bit; nobody sees the file before it is whole.

    Use as a context manager. The file takes its name when the block ends without an error, and
    ``file`` describes it from then on; otherwise nothing is left behind.

    Args:
        path: The file to write, or to replace; its directory is made.
        schema: One of `larder.manifest.schemas`.
        row_group_rows: Rows per row group; at most these are held in memory.

    Raises:
        StoreError: ``store.full``: no space is left.
        ConfigError: ``config.path``: the directory cannot be written.
    """

    def __init__(
        self, path: Path, schema: pa.Schema, *, row_group_rows: int = ROW_GROUP_ROWS
    ) -> None:
        self._path = path
        self._schema = schema
        self._row_group_rows = row_group_rows
        self._rows: list[Any] = []
        self._batches: list[pa.RecordBatch] = []
        self._buffered = 0
        self._written = 0
        self._file: ManifestFile | None = None

    @property
    def file(self) -> ManifestFile:
        """The finished file."""
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
        """Add the rows of a batch that has the schema of the file.

        Raises:
            TypeError: It has another schema.
        """
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
        try:
            if error is None:
                self._finish()
        finally:
            with suppress(Exception):  # of a disk that is full: the first error is the one to see
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
            self._batches.append(batch)
            self._buffered += batch.num_rows

    def _flush(self) -> None:
        # One chunk per column: where chunks end would show in the pages.
        table = pa.Table.from_batches(self._batches, schema=self._schema).combine_chunks()
        with disk_errors(self._path):
            self._parquet.write_table(table, row_group_size=self._row_group_rows)
        self._written += self._buffered
        self._batches, self._buffered = [], 0

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


def write_manifest(
    path: Path,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    row_group_rows: int = ROW_GROUP_ROWS,
) -> ManifestFile:
    """Write a manifest from a stream of batches, under a temporary name until it is whole.

    Args:
        path: The file to write, or to replace; its directory is made.
        schema: One of `larder.manifest.schemas`.
        batches: Batches of any length that have this schema.
        row_group_rows: Rows per row group; at most these are held in memory.

    Raises:
        TypeError: A batch has another schema.
        StoreError: ``store.full``: no space is left.
        ConfigError: ``config.path``: the directory cannot be written.
    """
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

    Only the row groups that hold wanted rows are read.

    Args:
        path: The file.
        schema: What it must be.
        columns: The columns to read, in the order wanted; all if None.
        first_row: The first row wanted, from 0.
        rows: How many rows are wanted; all that follow if None.
        batch_rows: Rows of a batch, at most.

    Raises:
        DamageError: ``damage.manifest``: the file is missing, is no Parquet file, is damaged, has
            other columns, or fewer rows than wanted.
    """
    with _damage(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        _check_schema(path, file.schema_arrow, schema)
        lengths = _group_lengths(path, file.metadata)
        last_row = _last_row(path, sum(lengths), first_row, rows)
        groups, skipped = _row_groups(lengths, first_row, last_row)
        names = list(columns) if columns is not None else schema.names
        row = skipped
        missing = last_row - first_row
        for batch in file.iter_batches(batch_size=batch_rows, row_groups=groups, columns=names):
            begin, end = max(first_row - row, 0), min(last_row - row, batch.num_rows)
            row += batch.num_rows
            if begin < end:
                wanted = batch.select(names).slice(begin, end - begin)
                wanted.validate(full=True)
                missing -= wanted.num_rows
                yield wanted
    if missing:
        raise _damaged(path, f"{missing:,} rows of the manifest are missing")


def sha256_file(path: Path) -> str:
    """The sha256 of a file, as 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn the errors of writing ``path`` on a local disk into those of `larder.errors`.

    Raises:
        StoreError: ``store.full``: no space is left.
        ConfigError: ``config.path``: anything else that the operating system has against it.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StoreError(
                "store.full", "no space is left on the disk", where=str(path)
            ) from error
        raise ConfigError(
            "config.path", f"cannot be written: {error.strerror or error}", where=str(path)
        ) from error


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


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(path, f"the manifest cannot be read: {error}") from error


def _damaged(path: Path, message: str) -> DamageError:
    return DamageError("damage.manifest", message, where=str(path))


def _check_schema(path: Path, found: pa.Schema, wanted: pa.Schema) -> None:
    if not found.equals(wanted):
        raise _damaged(path, f"the manifest's columns are {', '.join(found.names)}")


def _last_row(path: Path, there: int, first_row: int, rows: int | None) -> int:
    last_row = there if rows is None else first_row + rows
    if first_row > there or last_row > there:
        raise _damaged(path, f"the manifest has {there:,} rows, not {max(first_row, last_row):,}")
    return last_row


def _group_lengths(path: Path, metadata: Any) -> list[int]:
    lengths = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
    if sum(lengths) != metadata.num_rows:
        raise _damaged(path, "the manifest's row groups do not add up")
    return lengths


def _row_groups(lengths: Sequence[int], first_row: int, last_row: int) -> tuple[list[int], int]:
    """The row groups that hold the wanted rows, and the rows before the first of them."""
    groups: list[int] = []
    skipped = row = 0
    for index, length in enumerate(lengths):
        begin, row = row, row + length
        if row <= first_row:
            skipped = row
        elif begin < last_row:
            groups.append(index)
    return groups, skipped
