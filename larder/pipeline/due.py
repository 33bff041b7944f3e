"""When a batch leaves receipts: how much work a run that is killed may have to do again."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Generic, Self, TypeVar

from larder.errors import LarderError

__all__ = ["RECEIPT_BYTES", "RECEIPT_SECONDS", "BatchReceipts", "Due"]

RECEIPT_BYTES = 192_000_000
RECEIPT_SECONDS = 8.0
"""What may be done without a receipt, by all batches that run at once. With what is under way
meanwhile that makes 256 MB or ten seconds, but for a single object or shard that takes longer."""

Item = TypeVar("Item")


class Due:
    """Adds up what was done since the last receipt.

    Args:
        concurrent_batches: Batches that run at once and share `RECEIPT_BYTES`.
        clock: Seconds from any fixed moment; for tests.
    """

    def __init__(
        self, concurrent_batches: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit_bytes = max(1, RECEIPT_BYTES // concurrent_batches)
        self._clock = clock
        self._bytes = 0
        self._since_seconds = clock()

    def add(self, size_bytes: int) -> None:
        """So many more bytes are done."""
        self._bytes += size_bytes

    def begin(self) -> None:
        """Count from now: a receipt was left, or there was nothing to leave one of."""
        self._bytes = 0
        self._since_seconds = self._clock()

    @property
    def now(self) -> bool:
        """Whether a receipt is due."""
        seconds = self._clock() - self._since_seconds
        return self._bytes >= self._limit_bytes or seconds >= RECEIPT_SECONDS


class BatchReceipts(ABC, Generic[Item]):
    """Notes what one batch finishes.

    As a context manager it leaves a receipt of the whole batch when the block ends. Until then it
    leaves partial ones as they fall due, and one of the rest if the block raises or not all was
    finished: whatever stops the run, the next one repeats little. Partial receipts of a batch that
    has a whole one say nothing new.

    Args:
        count: How many items the batch has.
        concurrent_batches: Batches that run at once.
        clock: Seconds from any fixed moment; for tests.
    """

    def __init__(
        self,
        count: int,
        *,
        concurrent_batches: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count = count
        self._due = Due(concurrent_batches, clock)
        self._lock = threading.Lock()
        self._items: list[Item] = []
        self._noted = 0

    def carry(self, items: Iterable[Item]) -> None:
        """Take over what an earlier try at this batch finished and left receipts of.

        Before anything else is noted.
        """
        self._items.extend(items)
        self._noted = len(self._items)

    def leave_if_due(self) -> None:
        """Leave a partial receipt if enough was finished, or some of it long enough ago.

        Not once everything is: the receipt of the whole batch comes next.
        """
        with self._lock:
            if len(self._items) in (self._noted, self._count) or not self._due.now:
                return
        self._leave_partial()

    def _leave_partial(self) -> None:
        with self._lock:
            first, items = self._noted, self._items[self._noted :]
            self._due.begin()
        if items:
            self._leave(items, first)
        with self._lock:
            self._noted += len(items)

    @abstractmethod
    def _leave(self, items: Sequence[Item], first: int | None) -> None:
        """Write a receipt: of all items, or a partial one of those from the ``first`` on."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            with suppress(LarderError):  # the first error is the one to see
                self._leave_partial()
        elif len(self._items) < self._count:
            self._leave_partial()
        else:
            self._leave(self._items, None)
