"""Sorting more rows than fit in memory: sorted runs on the disk, merged a block at a time.

Rows are compared column by column: text by its UTF-8 bytes, binary by its bytes, whole numbers by
value. The sort is stable. What fits into one run never touches the disk.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from larder.disk import disk_errors
from larder.manifest.files import BATCH_ROWS

__all__ = ["RUN_ROWS", "sort_batches"]

RUN_ROWS = 500_000
"""Rows sorted in memory at once."""

_RUN_BYTES = 512 * 1024**2
_FAN_IN = 32


def sort_batches(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    by: Sequence[str],
    *,
    work_dir: Path,
    run_rows: int = RUN_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Sort the rows of a stream of batches, within bounded memory.

    At most two runs are held at once, one of them as it is sorted. A run ends early at 512 MiB.

    Args:
        batches: Batches of any length that have ``schema``; read to the end before the first
            row comes out.
        schema: Their columns.
        by: Columns to sort by, the first one first; they hold no nulls.
        work_dir: Directory for the runs; what is put there is removed at the end.
        run_rows: Rows of a run.

    Yields:
        Batches of the sorted rows.

    Raises:
        StoreError: ``store.full``: no space is left in ``work_dir``.
        ConfigError: ``config.path``: ``work_dir`` cannot be written.
    """
    runs = (_sorted(run, by) for run in _cut(batches, schema, run_rows))
    first = next(runs, None)
    if first is None:
        return
    second = next(runs, None)
    if second is None:
        yield from first.to_batches(max_chunksize=BATCH_ROWS)
        return
    with disk_errors(work_dir):
        work_dir.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(dir=work_dir, prefix="sort-")
    with folder as name:
        spill = _Spill(Path(name), schema, by, max(1, run_rows // _FAN_IN))
        paths = [spill.write([first])]
        del first
        paths.append(spill.write([second]))
        del second
        paths += [spill.write([run]) for run in runs]
        yield from spill.merge_all(paths)


def _cut(batches: Iterable[pa.RecordBatch], schema: pa.Schema, run_rows: int) -> Iterator[pa.Table]:
    """Cut the stream into tables of ``run_rows`` rows, fewer where those are large."""
    held: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, run_rows - rows)
            start += piece.num_rows
            held.append(piece)
            rows += piece.num_rows
            size_bytes += piece.nbytes
            if rows >= run_rows or size_bytes >= _RUN_BYTES:
                yield pa.Table.from_batches(held, schema=schema)
                held, rows, size_bytes = [], 0, 0
    if held:
        yield pa.Table.from_batches(held, schema=schema)


def _sorted(table: pa.Table, by: Sequence[str]) -> pa.Table:
    table = table.combine_chunks()
    if _in_order(table, by):
        return table
    indices = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in by])
    return table.take(indices)


def _in_order(table: pa.Table, by: Sequence[str]) -> bool:
    """Whether the rows are sorted already: most listings come that way, and it is cheap to see."""
    if table.num_rows < 2:
        return True
    below: Any = False
    equal: Any = True
    for name in by:
        column = table.column(name).combine_chunks()
        left, right = column[:-1], column[1:]
        below = pc.or_(below, pc.and_(equal, pc.less(left, right)))
        equal = pc.and_(equal, pc.equal(left, right))
    return bool(pc.all(pc.or_(below, equal)).as_py())


def _blocks(table: pa.Table, most_rows: int) -> list[pa.RecordBatch]:
    """Cut a table so that a block of every run that is merged fits into memory at once."""
    fitting = table.num_rows * (_RUN_BYTES // _FAN_IN) // max(1, table.nbytes)
    blocks: list[pa.RecordBatch] = table.to_batches(max_chunksize=max(1, min(most_rows, fitting)))
    return blocks


class _Spill:
    """Sorted runs as Arrow files in one directory, and how they are merged."""

    def __init__(self, folder: Path, schema: pa.Schema, by: Sequence[str], block_rows: int) -> None:
        self._folder = folder
        self._schema = schema
        self._by = by
        self._count = 0
        self._block_rows = block_rows

    def write(self, tables: Iterable[pa.Table]) -> Path:
        """Write sorted tables, one after the other, as one run."""
        path = self._folder / f"{self._count}.arrow"
        self._count += 1
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with (
            disk_errors(path),
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_stream(sink, self._schema, options=options) as writer,
        ):
            for table in tables:
                for block in _blocks(table, self._block_rows):
                    writer.write_batch(block)
        return path

    def merge_all(self, paths: list[Path]) -> Iterator[pa.RecordBatch]:
        """The rows of all runs; more than can be merged at once are merged in rounds."""
        while len(paths) > _FAN_IN:
            groups = [paths[at : at + _FAN_IN] for at in range(0, len(paths), _FAN_IN)]
            paths = [self.write(self._merge(group)) for group in groups]
        for table in self._merge(paths):
            yield from table.to_batches(max_chunksize=BATCH_ROWS)

    def _merge(self, paths: Sequence[Path]) -> Iterator[pa.Table]:
        """Merge runs, and remove them.

        The least of the blocks' last rows bounds what can come out: all rows up to it are in the
        blocks at hand.
        """
        runs = [_Run(path, self._by) for path in paths]
        while runs := [run for run in runs if run.rows]:
            last, bound = min((run.last, at) for at, run in enumerate(runs))
            # Rows that equal the bound come from earlier runs first: the sort is stable.
            pieces = [run.take(last, equal=at <= bound) for at, run in enumerate(runs)]
            table = pa.Table.from_batches([piece for piece in pieces if piece.num_rows])
            yield _sorted(table, self._by)


class _Run:
    """A sorted run on the disk, of which one block is in memory."""

    def __init__(self, path: Path, by: Sequence[str]) -> None:
        self._path = path
        self._file = pa.OSFile(str(path), "rb")
        self._blocks = iter(pa.ipc.open_stream(self._file))
        self._by = by
        self._start = self._stop = 0
        self._block: pa.RecordBatch = None
        self._columns: list[pa.Array] = []
        self.last: tuple[Any, ...] = ()
        self._next_block()

    @property
    def rows(self) -> int:
        """Rows at hand; none when the run is used up."""
        return self._stop - self._start

    def take(self, bound: tuple[Any, ...], *, equal: bool) -> pa.RecordBatch:
        """Remove and return the rows below ``bound``, and those equal to it if so wanted."""
        search = bisect_right if equal else bisect_left
        stop = search(range(self._stop), bound, lo=self._start, key=self._key)
        piece = self._block.slice(self._start, stop - self._start)
        self._start = stop
        if not self.rows:
            self._next_block()
        return piece

    def _key(self, row: int) -> tuple[Any, ...]:
        return tuple(column[row].as_py() for column in self._columns)

    def _next_block(self) -> None:
        self._start = self._stop = 0
        block = next(self._blocks, None)
        if block is None:
            self._file.close()
            self._path.unlink()
            return
        self._block = block
        self._columns = [block.column(name) for name in self._by]
        self._stop = block.num_rows
        self.last = self._key(self._stop - 1)
