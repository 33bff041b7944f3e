"""Receipts of copies, left while a batch is still being copied."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from larder.manifest.files import write_manifest
from larder.pipeline.due import BatchReceipts
from larder.pipeline.job import put_named
from larder.pipeline.results import Totals
from larder.store.base import Store
from larder.transfer.copy import Copied
from larder.transfer.receipts import COPIED, copied_batch
from larder.versions import layout

__all__ = ["CopyReceipts"]


class CopyReceipts(BatchReceipts[Copied]):
    """Notes what one batch copies; see `larder.pipeline.due.BatchReceipts`.

    Args:
        root: The dataset's root.
        segment: ID of the segment that is being built.
        name: Of the batch; no other batch of the segment has it.
        folder: A private directory for temporary files.
        count: How many objects the batch has.
        concurrent_batches: Batches that run at once.
        clock: Seconds from any fixed moment; for tests.
    """

    def __init__(
        self,
        root: Store,
        segment: str,
        name: str,
        folder: Path,
        *,
        count: int,
        concurrent_batches: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(count, concurrent_batches=concurrent_batches, clock=clock)
        self._root = root
        self._prefix = layout.batch_copies_prefix(segment, name)
        self._partial_prefix = layout.partial_copies_prefix(segment, name)
        self._folder = folder

    @property
    def done(self) -> Totals:
        """What was copied so far."""
        with self._lock:
            return Totals(len(self._items), sum(row.source.size_bytes for row in self._items))

    def add(self, row: Copied) -> None:
        """Note an object; may be called from any thread."""
        with self._lock:
            if len(self._items) == self._noted:
                self._due.begin()
            self._items.append(row)
            self._due.add(row.source.size_bytes)

    def _leave(self, items: Sequence[Copied], first: int | None) -> None:
        prefix = self._prefix if first is None else self._partial_prefix
        file = write_manifest(self._folder / "receipt.parquet", COPIED, [copied_batch(items)])
        put_named(self._root, f"{prefix}{file.sha256}.parquet", file)
