"""Manifests as Parquet files: written as a stream, read by ranges of rows.

Rows are divided into row groups of a fixed length, however they arrive, so that the same rows give
the same bytes with the same pyarrow. Every page has a checksum, which is verified when it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from larder.errors import DamageError
from larder.manifest.writer import ROW_GROUP_ROWS, ManifestFile, ManifestWriter

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
    """Write a manifest from a stream of batches, under a temporary name until it is complete.

    At most ``row_group_rows`` rows are held in memory.
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

    Only the row groups with these rows are read, one at a time. A file that is missing, damaged, or
    has other columns or too few rows is refused with ``damage.manifest``.
    """
    with _damage(path), _opened(path) as file:
        _check_schema(path, file.schema_arrow, schema)
        lengths = _group_lengths(path, file.metadata)
        last_row = _last_row(path, sum(lengths), first_row, rows)
        groups, skipped = _row_groups(lengths, first_row, last_row)
        names = list(columns) if columns is not None else schema.names
        row = skipped
        missing = last_row - first_row
        # In this thread: the memory that others free is not given back.
        for batch in file.iter_batches(
            batch_size=batch_rows, row_groups=groups, columns=names, use_threads=False
        ):
            begin, end = max(first_row - row, 0), min(last_row - row, batch.num_rows)
            row += batch.num_rows
            if begin < end:
                wanted = batch.select(names).slice(begin, end - begin)
                wanted.validate(full=True)
                missing -= wanted.num_rows
                yield wanted
                if not missing:
                    return  # the rest of the row group is not decoded
    if missing:
        raise _damaged(path, f"{missing:,} rows of the manifest are missing")


def _opened(path: Path) -> pq.ParquetFile:
    # Prebuffering is meant for remote stores, and would keep everything in memory until the end.
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
        raise _damaged(path, "the manifest's row groups are inconsistent")
    return lengths


def _row_groups(lengths: Sequence[int], first_row: int, last_row: int) -> tuple[list[int], int]:
    """The row groups with the wanted rows, and the number of rows before the first of them."""
    groups: list[int] = []
    skipped = row = 0
    for index, length in enumerate(lengths):
        begin, row = row, row + length
        if row <= first_row:
            skipped = row
        elif begin < last_row:
            groups.append(index)
    return groups, skipped
