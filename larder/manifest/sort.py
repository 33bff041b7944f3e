"""Streams of rows: sort them, and cut two or more at the same places to join them piece by piece.

Rows in order, such as a listing, are passed through a file instead of being sorted. Sorting a
million rows takes DuckDB two seconds of CPU; comparing neighbours takes a tenth. So rows are
written to a file while they come in order, and all are sorted if a batch is out of order. Arrow
sorts a few rows in less time than loading DuckDB takes.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from larder.disk import disk_errors
from larder.errors import DamageError
from larder.manifest.manifest_files import BATCH_ROWS
from larder.manifest.query import Stream, query
from larder.manifest.spool import row_range

_FEW_BYTES = 8 << 20
"""Most bytes of rows to sort in memory."""


def sort(
    rows: Stream, by: Sequence[str], *, ties: Sequence[str] = (), work_dir: Path
) -> Generator[pa.RecordBatch]:
    """Sort rows, within the memory of `larder.manifest.query.tables_in`.

    All rows are read before the first row is returned. The columns ``by`` have no nulls: numbers
    are sorted by value, strings by their UTF-8 bytes. ``ties`` are further columns for rows with
    equal ``by``, where null is less than all values. Nothing remains in ``work_dir``.
    """
    with work_folder(work_dir) as folder:
        path = folder / "rows.arrow"
        batches = iter(rows.batches)
        following = _spool(batches, rows.schema, by, path)
        if following is None:
            yield from _read(path)
            return
        unsorted = Stream(rows.schema, chain(_read(path), [following], batches))
        yield from _sorted(unsorted, (*by, *ties), work_dir)


def sort_to_file(rows: Stream, by: Sequence[str], path: Path) -> SortedFile:
    """Sort rows like `sort`, into a file from which any range of rows can be read.

    No two rows may have the same ``by``. Temporary files are written next to ``path``.
    """
    batches = iter(rows.batches)
    following = _spool(batches, rows.schema, by, path)
    if following is None:
        return SortedFile(path, rows.schema)
    with work_folder(path.parent) as folder:
        spooled = path.replace(folder / "rows.arrow")
        unsorted = Stream(rows.schema, chain(_read(spooled), [following], batches))
        with closing(_sorted(unsorted, by, folder)) as sorted_rows:
            return write_rows(Stream(rows.schema, sorted_rows), path)


def write_rows(rows: Stream, path: Path) -> SortedFile:
    """Write rows in their order to a file from which any range can be read."""
    with _writer(path, rows.schema) as writer:
        for batch in rows.batches:
            writer.write_batch(batch)
    return SortedFile(path, rows.schema)


def sorted_query(
    statement: str,
    inputs: Mapping[str, Stream],
    schema: pa.Schema,
    by: Sequence[str],
    *,
    work_dir: Path,
) -> Generator[pa.RecordBatch]:
    """Yield the rows of a statement, sorted by columns ``by``; no two rows may have equal ``by``.

    The rows are sorted after the statement has ended, because joining and sorting each take all of
    the memory.
    """
    with work_folder(work_dir) as folder:
        with closing(query(statement, inputs, schema, work_dir=folder)) as batches:
            rows = write_rows(Stream(schema, batches), folder / "unsorted.arrow")
        yield from sort(Stream(schema, rows.read()), by, work_dir=folder)


class SortedFile:
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.schema = schema
        self._path = path
        with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
            counts = (reader.get_batch(i).num_rows for i in range(reader.num_record_batches))
            self._starts = [0, *accumulate(counts)]
        self.rows = self._starts[-1]

    def read(self, first_row: int = 0, stop_row: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows from ``first_row`` up to ``stop_row``, or to the end."""
        stop = self.rows if stop_row is None else stop_row
        return row_range(self._starts, self._batch, first_row, stop)

    def _batch(self, place: int) -> pa.RecordBatch:
        """Map a batch, so that only the used columns are read.

        Each batch has its own map, which ends with the batch, because pages that were read stay in
        memory as long as their map.
        """
        with pa.memory_map(str(self._path)) as file, pa.ipc.open_file(file) as reader:
            return reader.get_batch(place)


@contextmanager
def work_folder(work_dir: Path) -> Iterator[Path]:
    """Make a private directory below ``work_dir``, and remove it at the end."""
    with disk_errors(work_dir):
        work_dir.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(dir=work_dir, prefix="sort-")
    with folder as name:
        yield Path(name)


@contextmanager
def _writer(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatchWriter]:
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            yield writer


def _sorted(rows: Stream, by: Sequence[str], work_dir: Path) -> Generator[pa.RecordBatch]:
    first_batches: list[pa.RecordBatch] = []
    batches, size_bytes = iter(rows.batches), 0
    for batch in batches:
        first_batches.append(batch)
        size_bytes += batch.nbytes
        if size_bytes > _FEW_BYTES:
            break
    else:
        yield from _sorted_few(pa.Table.from_batches(first_batches, rows.schema), by)
        return
    terms = ", ".join(f'"{name}" ASC NULLS FIRST' for name in by)
    statement = f"SELECT * FROM rows ORDER BY {terms}"  # noqa: S608 - names of columns
    everything = Stream(rows.schema, chain(first_batches, batches))
    yield from query(statement, {"rows": everything}, rows.schema, work_dir=work_dir)


def _sorted_few(rows: pa.Table, by: Sequence[str]) -> Iterator[pa.RecordBatch]:
    keys = {}
    for number, column in enumerate(map(rows.column, by)):
        if column.null_count:
            keys[f"{number} is not null"] = pc.is_valid(column)
        keys[f"{number}"] = column
    places = pc.sort_indices(pa.table(keys), [(name, "ascending") for name in keys])
    yield from rows.take(places).combine_chunks().to_batches(BATCH_ROWS)


def _spool(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, by: Sequence[str], path: Path
) -> pa.RecordBatch | None:
    """Write batches to a file while they are in order; return the first batch that is not."""
    last: list[pa.RecordBatch] = []
    with _writer(path, schema) as writer:
        for batch in batches:
            if not batch.num_rows:
                continue
            keys = batch.select(list(by))
            if not _ascending(pa.concat_batches([*last, keys])):
                return batch
            last = [keys.slice(batch.num_rows - 1)]
            writer.write_batch(batch)
    return None


def _ascending(keys: pa.RecordBatch) -> bool:
    """Whether every row is above the previous row, compared column by column."""
    above, equal = (pa.repeat(value, keys.num_rows - 1) for value in (False, True))
    for column in keys.columns:
        before, after = column[:-1], column[1:]
        above = pc.or_(above, pc.and_(equal, pc.less(before, after)))
        equal = pc.and_(equal, pc.equal(before, after))
    return bool(pc.all(above, min_count=0).as_py())


def _read(path: Path) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
        for index in range(reader.num_record_batches):
            batch = reader.get_batch(index)
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(start, BATCH_ROWS)


def aligned(streams: Sequence[Stream], by: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, ...]]:
    """Yield a piece of each stream at a time; rows with equal keys are in pieces of one time.

    The streams must be sorted by the columns ``by``, without nulls: numbers by value, strings by
    their UTF-8 bytes. At least one piece has rows. Memory holds one batch of each stream. So if a
    stream repeats a key in the next batch, only the first batch's rows of this key are sure to come
    with the other streams' rows.

    Raises:
        DamageError: ``damage.manifest``: rows are out of order.
    """
    inputs = [_MergeInput(rows, by) for rows in streams]
    while ends := [end for each in inputs if (end := each.last()) is not None]:
        bound = min(ends)
        pieces = tuple(each.take(bound) for each in inputs)
        if not any(piece.num_rows for piece in pieces):
            message = "the rows of a list of objects are not in the order of their keys"
            hint = "restore the record of the copy, or delete it and run again"
            raise DamageError("damage.manifest", message, hint=hint)
        yield pieces


def whole_keys(batches: Iterable[pa.RecordBatch], key: str) -> Iterator[pa.RecordBatch]:
    """Divide rows into batches that end at the last row of a key, for `aligned`.

    Memory holds one batch and the rows with one key.
    """
    tail: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = pa.concat_batches([*tail, batch])
        last = pc.index(rows.column(key), rows.column(key)[-1]).as_py()
        tail = [rows.slice(last)]
        if last:
            yield rows.slice(0, last)
    yield from tail


class _MergeInput:
    def __init__(self, rows: Stream, by: Sequence[str]) -> None:
        self._batches = iter(rows.batches)
        self._by = by
        self._empty = pa.RecordBatch.from_pylist([], schema=rows.schema)
        self._batch = self._empty

    def last(self) -> tuple[Any, ...] | None:
        """Return the key of the last row of the current batch; None at the end of the stream."""
        while not self._batch.num_rows:
            batch = next(self._batches, None)
            if batch is None:
                return None
            self._batch = batch
        return self._key(self._batch.num_rows - 1)

    def take(self, bound: tuple[Any, ...]) -> pa.RecordBatch:
        """Take the rows of the current batch up to a key, and nothing of later batches."""
        end = bisect_right(range(self._batch.num_rows), bound, key=self._key)
        taken, self._batch = self._batch.slice(0, end), self._batch.slice(end)
        return taken

    def _key(self, row: int) -> tuple[Any, ...]:
        # Python orders strings by code points, which is the order of their UTF-8 bytes.
        return tuple(self._batch.column(name)[row].as_py() for name in self._by)
