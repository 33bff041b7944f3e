"""When a batch writes receipts: how much work may have to be repeated if a run is killed."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from types import TracebackType
from typing import Generic, Self, TypeVar

from larder.errors import LarderError

RECEIPT_BYTES = 192_000_000
RECEIPT_SECONDS = 8.0
"""How much all concurrent batches may do without a receipt. With the work in progress, that is at
most 256 MB or ten seconds, except for a single object or shard that takes longer."""

Item = TypeVar("Item")


class Due:
    """Counts what was done since the last receipt; concurrent batches share `RECEIPT_BYTES`."""

    def __init__(
        self, concurrent_batches: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit_bytes = max(1, RECEIPT_BYTES // concurrent_batches)
        self._clock = clock
        self._bytes = 0
        self._since_seconds = clock()

    def add(self, size_bytes: int) -> None:
        self._bytes += size_bytes

    def begin(self) -> None:
        """Start counting: a receipt was written, or nothing has been done yet."""
        self._bytes = 0
        self._since_seconds = self._clock()

    @property
    def now(self) -> bool:
        """Whether a receipt is due."""
        seconds = self._clock() - self._since_seconds
        return self._bytes >= self._limit_bytes or seconds >= RECEIPT_SECONDS


class Items(Generic[Item]):
    """What was finished, in that order."""

    def __init__(self) -> None:
        self._items: list[Item] = []

    def append(self, item: Item) -> None:
        """Add an item."""
        self._items.append(item)

    def __len__(self) -> int:
        return len(self._items)

    def since(self, first: int) -> Iterator[Item]:
        """The items from number ``first`` on; none may be added meanwhile."""
        return islice(self._items, first, None)


class BatchReceipts(ABC, Generic[Item]):
    """Records what one batch finishes.

    As a context manager, it writes a receipt for the whole batch when the block ends. Until then it
    writes partial receipts when they are due, and one for the rest if the block raises an error or
    not everything was finished: whatever stops the run, the next one repeats little. Partial
    receipts are redundant once the batch has a complete one.

    ``count`` is the number of items in the batch.
    """

    def __init__(
        self,
        count: int,
        *,
        concurrent_batches: int = 1,
        clock: Callable[[], float] = time.monotonic,
        items: Items[Item] | None = None,
    ) -> None:
        self._count = count
        self._due = Due(concurrent_batches, clock)
        self._lock = threading.Lock()
        self._items: Items[Item] = Items() if items is None else items
        self._noted = 0

    def carry(self, items: Iterable[Item]) -> None:
        """Adopt what an earlier attempt at this batch finished and wrote receipts for.

        Call it before anything else is recorded.
        """
        for item in items:
            self._items.append(item)
        self._noted = len(self._items)

    def leave_if_due(self) -> None:
        """Write a partial receipt if enough was finished, or some of it long enough ago.

        Does nothing once everything is finished: the receipt for the whole batch comes next.
        """
        with self._lock:
            if len(self._items) in (self._noted, self._count) or not self._due.now:
                return
        self._leave_partial()

    def _leave_partial(self) -> None:
        with self._lock:
            first, items = self._noted, list(self._items.since(self._noted))
            self._due.begin()
        if items:
            self._leave(items, len(items), first)
        with self._lock:
            self._noted += len(items)

    @abstractmethod
    def _leave(self, items: Iterable[Item], count: int, first: int | None) -> None:
        """Write a receipt for all ``count`` items, or a partial one for those from ``first`` on."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            with suppress(LarderError):  # the first error is the relevant one
                self._leave_partial()
        elif len(self._items) < self._count:
            self._leave_partial()
        else:
            self._leave(self._items.since(0), len(self._items), None)
