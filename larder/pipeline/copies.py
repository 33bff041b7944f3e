"""Receipts of copies, left while a batch is still being copied."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from larder.errors import LarderError
from larder.manifest.files import write_manifest
from larder.pipeline.due import Due
from larder.pipeline.job import put_named
from larder.pipeline.results import Count
from larder.store.base import Store
from larder.transfer.copy import Copied
from larder.transfer.receipts import COPIED, copied_batch
from larder.versions import layout

__all__ = ["CopyReceipts"]


class CopyReceipts:
    """Notes what one batch copies.

    As a context manager it leaves a receipt of the whole batch when the block ends. Until then it
    leaves partial ones as they fall due, and one of the rest if the block raises: whatever stops
    the run, the next one copies little again. Partial receipts of a batch that has a whole one say
    nothing new.

    Args:
        root: The dataset's root.
        segment: ID of the segment that is being built.
        folder: A private directory for temporary files.
        beside: Batches that run at once.
        clock: Seconds from any fixed moment; for tests.
    """

    def __init__(
        self,
        root: Store,
        segment: str,
        folder: Path,
        *,
        beside: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = root
        self._prefix = layout.copies_prefix(segment)
        self._partial_prefix = layout.partial_copies_prefix(segment)
        self._folder = folder
        self._due = Due(beside, clock)
        self._lock = threading.Lock()
        self._rows: list[Copied] = []
        self._noted = 0

    @property
    def done(self) -> Count:
        """What was copied so far."""
        with self._lock:
            return Count(len(self._rows), sum(row.source.size_bytes for row in self._rows))

    def add(self, row: Copied) -> None:
        """Note an object; may be called from any thread."""
        with self._lock:
            if len(self._rows) == self._noted:
                self._due.begin()
            self._rows.append(row)
            self._due.add(row.source.size_bytes)

    def leave_if_due(self) -> None:
        """Leave a partial receipt if enough was copied, or some of it long enough ago."""
        with self._lock:
            if len(self._rows) == self._noted or not self._due.now:
                return
        self._leave_partial()

    def _leave_partial(self) -> None:
        with self._lock:
            rows = self._rows[self._noted :]
            self._due.begin()
        self._leave(self._partial_prefix, rows)
        with self._lock:
            self._noted += len(rows)

    def _leave(self, prefix: str, rows: Sequence[Copied]) -> None:
        if rows:
            path = self._folder / "receipt.parquet"
            file = write_manifest(path, COPIED, [copied_batch(rows)])
            put_named(self._root, f"{prefix}{file.sha256}.parquet", file)

    def __enter__(self) -> CopyReceipts:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self._leave(self._prefix, self._rows)
            return
        with suppress(LarderError):  # the first error is the one to see
            self._leave_partial()
