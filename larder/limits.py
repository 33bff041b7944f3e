"""Bounds on memory and on work under way, for stages that read ahead."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TypeVar

__all__ = [
    "STREAM_BYTES",
    "WRITER_BYTES",
    "ByteBudget",
    "batches_at_once",
    "map_ahead",
    "map_done",
    "read_ahead_bytes",
]

WRITER_BYTES = 48 * 1024**2
"""What a stream into an object store holds: a part of 16 MiB being filled, and two being sent."""

STREAM_BYTES = 64 * 1024**2
"""What an object on its way from a store to another holds: `WRITER_BYTES`, and what is read."""

_LEAST_READ_AHEAD_BYTES = 8 * 1024**2

Item = TypeVar("Item")
Result = TypeVar("Result")


def batches_at_once(workers: int, memory_bytes: int) -> int:
    """How many batches may run at once, so that each has the memory that a stream takes.

    Args:
        workers: How many are allowed.
        memory_bytes: Shared by all of them; one batch runs however little it is.
    """
    return min(workers, max(1, memory_bytes // STREAM_BYTES))


def read_ahead_bytes(share_bytes: int, *, local: bool) -> int:
    """What a batch of shards may read ahead, of its share of the memory.

    Args:
        share_bytes: All that the batch may hold.
        local: The shards are written to a directory, else to an object store.
    """
    if local:
        return max(1, share_bytes)
    return max(_LEAST_READ_AHEAD_BYTES, share_bytes - WRITER_BYTES)


class ByteBudget:
    """So many bytes in memory at once, over all threads; first come, first served.

    A request larger than the whole budget waits for all of it and then goes alone, so nothing
    waits for ever.

    Args:
        total_bytes: The bound, at least 1.
    """

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self._free = total_bytes
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()

    def acquire(self, size_bytes: int) -> int:
        """Wait for ``size_bytes`` and take them; returns what to give back to `release`."""
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
        """Take ``size_bytes`` as `acquire` does, or None if that would have to wait."""
        taken = min(size_bytes, self.total_bytes)
        with self._changed:
            if self._queue or self._free < taken:
                return None
            self._free -= taken
        return taken

    def release(self, taken: int) -> None:
        """Give back what `acquire` returned."""
        with self._changed:
            self._free += taken
            self._changed.notify_all()

    @contextmanager
    def holding(self, size_bytes: int) -> Iterator[None]:
        """Hold ``size_bytes`` for the length of a ``with`` block."""
        taken = self.acquire(size_bytes)
        try:
            yield
        finally:
            self.release(taken)


def map_ahead(
    executor: Executor, function: Callable[[Item], Result], items: Iterable[Item], *, window: int
) -> Iterator[Result]:
    """``map(function, items)`` in order, with at most ``window`` calls under way or waiting.

    The first exception of a call is raised in its turn; what has not begun by then is cancelled.
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


def map_done(
    executor: Executor,
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    window: int,
    wake_seconds: float,
) -> Iterator[Result | None]:
    """``map(function, items)`` as calls end, with at most ``window`` under way or waiting.

    Yields None whenever no call has ended for ``wake_seconds``. The first exception of a call is
    raised at once; what has not begun by then is cancelled.
    """
    ended: SimpleQueue[Future[Result]] = SimpleQueue()
    pending: set[Future[Result]] = set()

    def next_result() -> Result | None:
        try:
            future = ended.get(timeout=wake_seconds)
        except Empty:
            return None
        pending.discard(future)
        return future.result()

    try:
        for item in items:
            while len(pending) >= window:
                yield next_result()
            future = executor.submit(function, item)
            pending.add(future)
            future.add_done_callback(ended.put)
        while pending:
            yield next_result()
    finally:
        for future in pending:
            future.cancel()
