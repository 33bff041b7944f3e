"""Rows kept for a while: a few in memory, many in a file of the system's temporary folder.

The file has no name, so it disappears with its process.
"""

from __future__ import annotations

import tempfile
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from larder.disk import disk_errors

_HELD_BYTES = 1 << 20


def row_range(
    starts: Sequence[int], batch_at: Callable[[int], pa.RecordBatch], first_row: int, stop_row: int
) -> Iterator[pa.RecordBatch]:
    """Yield a range of rows; ``starts`` has the first row of each batch, and the row count."""
    place = max(0, bisect_right(starts, first_row) - 1)
    while place + 1 < len(starts) and max(first_row, starts[place]) < stop_row:
        first = max(0, first_row - starts[place])
        batch = batch_at(place)
        yield batch.slice(first, min(stop_row - starts[place], batch.num_rows) - first)
        place += 1


class Spool:
    """Rows of one schema; any range can be read while rows are still added.

    Memory is up to 1 MiB, and 16 bytes for each batch. A spool may be used by one thread at a time.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._file = tempfile.SpooledTemporaryFile(_HELD_BYTES)  # noqa: SIM115 - closed as it goes
        weakref.finalize(self, self._file.close)
        self._rows = [0]
        self._places = [0]

    @classmethod
    def of(cls, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Spool:
        spool = cls(schema)
        for batch in batches:
            spool.append(batch)
        return spool

    @property
    def num_rows(self) -> int:
        return self._rows[-1]

    def append(self, batch: pa.RecordBatch) -> None:
        if not batch.schema.equals(self.schema):
            raise TypeError(f"a batch has columns {batch.schema.names}")
        if batch.num_rows:
            with disk_errors(Path(tempfile.gettempdir())):
                self._file.seek(self._places[-1])
                self._file.write(batch.serialize())
            self._places.append(self._file.tell())
            self._rows.append(self.num_rows + batch.num_rows)

    def read(self, first_row: int = 0, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield rows in the batches in which they were added, one batch in memory at a time."""
        stop = self.num_rows if rows is None else first_row + rows
        return row_range(self._rows, self._batch, first_row, stop)

    def _batch(self, place: int) -> pa.RecordBatch:
        with disk_errors(Path(tempfile.gettempdir()), reading=True):
            self._file.seek(self._places[place])
            data = self._file.read(self._places[place + 1] - self._places[place])
        return pa.ipc.read_record_batch(pa.py_buffer(data), self.schema)
