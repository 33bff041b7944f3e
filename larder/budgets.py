"""Budgets of bytes in memory, and of work under way for stages that read ahead."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

from larder.bounds import STREAM_BYTES, WRITER_BYTES

_LEAST_READ_AHEAD_BYTES = 8 * 1024**2

Item = TypeVar("Item")
Result = TypeVar("Result")


def batches_at_once(count: int, memory_bytes: int) -> int:
    """Limit ``count`` to the batches whose streams fit in memory, but at least 1."""
    return min(count, max(1, memory_bytes // STREAM_BYTES))


def even_share(total: int, spare: int, at_once: int, least: int, most: int) -> int:
    """Return the maximum size of batches, so that ``at_once`` batches begin and end together.

    Batches get ``spare`` more than their share, so that equal items are divided evenly.
    """
    batches = at_once * max(1, -(-total // (at_once * most)))
    return min(most, max(least, -(-total // batches) + spare))


def read_ahead_bytes(share_bytes: int, *, local: bool) -> int:
    """Return the bytes that a batch may read ahead; one that uploads needs memory for that, too."""
    if local:
        return max(1, share_bytes)
    return max(_LEAST_READ_AHEAD_BYTES, share_bytes - WRITER_BYTES)


class ByteBudget:
    """A bound on bytes in memory over all threads; first come, first served.

    A request larger than the whole budget waits until all of it is free, and then exceeds it.
    """

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self._free = total_bytes
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()

    def acquire(self, size_bytes: int) -> int:
        """Wait for ``size_bytes`` and take them; returns the value to pass to `release`."""
        taken = min(size_bytes, self.total_bytes)
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            try:
                self._changed.wait_for(lambda: self._queue[0] is ticket and self._free >= taken)
                self._free -= taken
            finally:
                self._queue.remove(ticket)
                self._changed.notify_all()
        return taken

    def try_acquire(self, size_bytes: int) -> int | None:
        """Take ``size_bytes`` like `acquire`, or return None if it would have to wait."""
        taken = min(size_bytes, self.total_bytes)
        with self._changed:
            if self._queue or self._free < taken:
                return None
            self._free -= taken
        return taken

    def release(self, taken: int) -> None:
        with self._changed:
            self._free += taken
            self._changed.notify_all()

    @contextmanager
    def holding(self, size_bytes: int) -> Iterator[None]:
        taken = self.acquire(size_bytes)
        try:
            yield
        finally:
            self.release(taken)


@cache
def decoding_budget(memory_bytes: int) -> ByteBudget:
    """Return the budget of decoded images that all threads of this process share."""
    return ByteBudget(memory_bytes)


def map_ahead(
    executor: Executor, function: Callable[[Item], Result], items: Iterable[Item], *, window: int
) -> Iterator[Result]:
    """Yield ``map(function, items)`` in order, with at most ``window`` calls running or waiting.

    An error is raised in its turn; calls that have not started are then cancelled.
    """
    pending: deque[Future[Result]] = deque()
    try:
        for item in items:
            pending.append(executor.submit(function, item))
            if len(pending) >= window:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
