"""A range of rows of a manifest that is not on this machine, with a few ranged requests.

The end of the file says where the columns of each row group are: 2 kB for every 65,536 rows, read
once. Then each row group with wanted rows takes one request for every run of neighbouring columns
that are wanted. The file as a whole is not compared with its digest, which would take reading all
of it: every page is compared with its checksum, the places of columns with each other, and what the
rows say of shards with these. ``larder verify`` compares the digest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate

import pyarrow as pa
import pyarrow.parquet as pq

from larder.errors import DamageError
from larder.seekable import RangedFile

_GAP_BYTES = 64 << 10
"""Columns that are so close to each other are read together."""

_BATCH_ROWS = 16_384


class RangedManifest:
    """Reads ranges of rows; ``fetch`` returns bytes of the file, given their offset and length.

    A file that is damaged or has other columns is refused with ``damage.manifest``; errors of
    ``fetch`` are raised as they are.
    """

    def __init__(
        self,
        fetch: Callable[[int, int], bytes],
        size_bytes: int,
        schema: pa.Schema,
        where: str,
    ) -> None:
        self._where = where
        self._file = _CachedRanges(fetch, size_bytes)
        with self._damage():
            self._parquet = pq.ParquetFile(
                pa.PythonFile(self._file, "r"), page_checksum_verification=True, pre_buffer=False
            )
            file_schema = self._parquet.schema_arrow
        if not file_schema.equals(schema):
            message = f"the manifest's columns are {', '.join(file_schema.names)}"
            raise DamageError("damage.manifest", message, where=where)
        metadata = self._parquet.metadata
        groups = range(metadata.num_row_groups)
        lengths = (metadata.row_group(group).num_rows for group in groups)
        self._starts = list(accumulate(lengths, initial=0))
        leaves = self._parquet.schema
        self._checked: set[int] = set()
        self._leaves = [leaves.column(at).path for at in range(len(leaves))]

    def rows(self, first_row: int, rows: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some rows, of which a row group is in memory at a time.

        Of columns that contain others, ``columns`` has all names on the way, as in
        ``parts.list.element.ext``.
        """
        stop = first_row + rows
        if stop > self._starts[-1]:
            message = f"the manifest has {self._starts[-1]:,} rows, not {stop:,}"
            raise DamageError("damage.manifest", message, where=self._where)
        if not rows:
            return
        for group in range(bisect_right(self._starts, first_row) - 1, len(self._starts) - 1):
            row = self._starts[group]
            if row >= stop:
                return
            with self._damage():
                self._check(group)
                self._file.hold(self._spans(group, columns))
                batches = self._parquet.iter_batches(
                    _BATCH_ROWS, row_groups=[group], columns=list(columns), use_threads=False
                )
                for batch in batches:
                    begin, end = max(first_row - row, 0), min(stop - row, batch.num_rows)
                    row += batch.num_rows
                    if begin < end:
                        wanted = batch.slice(begin, end - begin)
                        wanted.validate(full=True)
                        yield wanted
                    if row >= stop:
                        break
            if row < min(stop, self._starts[group + 1]):
                message = "rows of the manifest are missing"
                raise DamageError("damage.manifest", message, where=self._where)

    def _check(self, group: int) -> None:
        """Check what the end of the file says of the columns of a row group; nothing is read.

        Where it is damaged, asking pyarrow for a column's place ends the process, as it does not
        expect that to fail. Reading the column raises an error, before it reads anything.
        """
        if group in self._checked:
            return
        for column in self._leaves:
            with self._file.nothing_is_read(), suppress(_UnreadError):
                batches = self._parquet.iter_batches(1, row_groups=[group], columns=[column])
                next(batches, None)
        self._checked.add(group)

    def _spans(self, group: int, columns: Sequence[str]) -> list[tuple[int, int]]:
        """Where the columns of a row group are, in as few ranges as makes sense.

        Columns follow each other without gaps, so a place that is damaged is noticed, also where
        pages with the right checksums are.
        """
        unknown = next((column for column in columns if column not in self._leaves), None)
        if unknown is not None:
            raise ValueError(f"it has no column {unknown}")
        metadata = self._parquet.metadata.row_group(group)
        spans: list[tuple[int, int]] = []
        before: int | None = None
        for number, column in enumerate(self._leaves):
            chunk = metadata.column(number)
            offsets = (chunk.dictionary_page_offset, chunk.data_page_offset)
            start = min(offset for offset in offsets if offset is not None)
            stop = start + chunk.total_compressed_size
            if before is not None and start != before:
                raise ValueError(f"column {column} is not behind the one before it")
            before = stop
            if column not in columns:
                continue
            if spans and 0 <= start - spans[-1][1] <= _GAP_BYTES:
                spans[-1] = (spans[-1][0], stop)
            else:
                spans.append((start, stop))
        return spans

    @contextmanager
    def _damage(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, ValueError) as error:
            message = f"the manifest cannot be read: {str(error).splitlines()[0]}"
            raise DamageError("damage.manifest", message, where=self._where) from error


class _UnreadError(Exception):
    """Something would have been read."""


class _CachedRanges(RangedFile):
    """A file for pyarrow, of which some ranges are held; others are fetched when they are read."""

    def __init__(self, fetch: Callable[[int, int], bytes], size_bytes: int) -> None:
        super().__init__(self._find, size_bytes)
        self._fetch = fetch
        self._pieces: list[tuple[int, bytes]] = []
        self._is_read = True

    @contextmanager
    def nothing_is_read(self) -> Iterator[None]:
        """Raise `_UnreadError` in the block instead of reading anything."""
        self._is_read = False
        try:
            yield
        finally:
            self._is_read = True

    def hold(self, spans: Sequence[tuple[int, int]]) -> None:
        """Fetch some ranges, and forget those before."""
        self._pieces = []
        self._pieces = [(start, self._fetch(start, stop - start)) for start, stop in spans]

    def _find(self, offset: int, length: int) -> bytes:
        if not self._is_read:
            raise _UnreadError
        for start, data in self._pieces:
            if start <= offset and offset + length <= start + len(data):
                return data[offset - start : offset - start + length]
        return self._fetch(offset, length)
