"""Receipts of copies, written while a batch is being copied."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from larder.copy.object import Copy
from larder.manifest.schemas import OBJECTS
from larder.manifest.writer import ManifestWriter
from larder.pipeline.copy_place import MIRROR, CopyPlace
from larder.pipeline.due import BatchReceipts, Items
from larder.pipeline.job import put_named
from larder.pipeline.results import Totals
from larder.store.base import Store

_PACKED_COPIES = 2_048
"""So many are tuples at a time: in columns they take a fifth of the memory."""

_PACKED = OBJECTS.set(
    OBJECTS.get_field_index("modified"), pa.field("modified", pa.int64(), nullable=False)
)

BATCH_OBJECTS = 50_000
"""Maximum number of objects in a batch, so that its receipt stays small even for small objects."""


class CopyReceipts(BatchReceipts[Copy]):
    """Records what one batch copies; see `larder.pipeline.due.BatchReceipts`.

    ``name`` is unique within the place; ``count`` is the number of objects in the batch.
    """

    def __init__(
        self,
        root: Store,
        name: str,
        folder: Path,
        *,
        count: int,
        concurrent_batches: int = 1,
        place: CopyPlace = MIRROR,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(count, concurrent_batches=concurrent_batches, clock=clock, items=_Copies())
        self._root = root
        self._prefix = place.finished(name)
        self._partial_prefix = place.partial(name)
        self._folder = folder

    @property
    def done(self) -> Totals:
        with self._lock:
            return Totals(len(self._items), sum(row.size_bytes for row in self._items.since(0)))

    def add(self, row: Copy) -> None:
        """Record an object; may be called from any thread."""
        with self._lock:
            if len(self._items) == self._noted:
                self._due.begin()
            self._items.append(row)
            self._due.add(row.size_bytes)

    def _leave(self, items: Iterable[Copy], count: int, first: int | None) -> None:
        self._root.sync()  # a receipt says that its copies are durable
        prefix = self._prefix if first is None else self._partial_prefix
        with ManifestWriter(self._folder / "receipt.parquet", OBJECTS) as writer:
            writer.append(items)
        put_named(self._root, f"{prefix}{writer.file.sha256}.parquet", writer.file)


class _Copies(Items[Copy]):
    """Copies in the order in which they were recorded."""

    def __init__(self) -> None:
        self._packed: list[pa.RecordBatch] = []
        self._last: list[Copy] = []

    def append(self, item: Copy) -> None:
        self._last.append(item)
        if len(self._last) == _PACKED_COPIES:
            columns = map(pa.array, zip(*self._last, strict=True), _PACKED.types)
            self._packed.append(pa.RecordBatch.from_arrays(list(columns), schema=_PACKED))
            self._last = []

    def __len__(self) -> int:
        return _PACKED_COPIES * len(self._packed) + len(self._last)

    def since(self, first: int) -> Iterator[Copy]:
        start = first - first % _PACKED_COPIES
        for batch in self._packed[first // _PACKED_COPIES :]:
            own = batch.slice(max(0, first - start))
            yield from map(Copy, *(column.to_pylist() for column in own.columns))
            start += _PACKED_COPIES
        yield from self._last[max(0, first - start) :]
