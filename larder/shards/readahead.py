"""Reads ahead of the consumer, in order, within a bound on the bytes in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from larder.limits import ByteBudget
from larder.machine import usable_cores
from larder.shards.images import Validation
from larder.store.base import Readable

Item = TypeVar("Item")
Result = TypeVar("Result")

_WHOLE_SHARE = 8


@dataclass(frozen=True, slots=True)
class Reads:
    """How to read; shared by all shards that a process builds concurrently.

    Attributes:
        executor: Threads that read; None to read sequentially in the caller's thread, which is
            fastest for files in the page cache.
        window: Maximum number of reads of one shard that are in progress or waiting.
        budget: Maximum bytes held by the reads of all shards.
    """

    executor: Executor | None
    window: int
    budget: ByteBudget

    @property
    def whole_bytes(self) -> int:
        """Samples larger than this, an eighth of the budget, are streamed instead of read ahead."""
        return self.budget.total_bytes // _WHOLE_SHARE


def suited_concurrency(source: Readable, validate: Validation, concurrency: int) -> int:
    """The best number of concurrent reads for a source, at most ``concurrency``.

    ===========  ============  ==================
    source       validate      reads at once
    ===========  ============  ==================
    directory    none, header  1
    directory    decode        one per core
    any other    any           ``concurrency``
    ===========  ============  ==================

    Files in the page cache are read faster than they are passed between threads (three times as
    fast, measured with 1 KB); decoding releases the interpreter lock.
    """
    if not source.features.local_path:
        return concurrency
    return min(concurrency, usable_cores()) if validate == "decode" else 1


@contextmanager
def open_reads(concurrency: int, memory_bytes: int) -> Iterator[Reads]:
    """Threads and memory to read with, for all shards.

    ``concurrency`` is from `suited_concurrency`; 1 reads in the caller's thread. ``memory_bytes``
    are those read but not yet consumed.
    """
    budget = ByteBudget(memory_bytes)
    if concurrency == 1:
        yield Reads(None, 1, budget)
        return
    executor = ThreadPoolExecutor(concurrency, thread_name_prefix="larder-read")
    try:
        yield Reads(executor, 2 * concurrency, budget)
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def read_ahead(
    items: Iterable[Item],
    read: Callable[[Item], Result],
    size_bytes: Callable[[Item], int],
    reads: Reads,
) -> Generator[tuple[Item, Result], None, None]:
    """Every item with the result of ``read``, in order.

    An item's bytes count from the time its read is submitted to a thread until the consumer
    requests the next item. Nothing waits for bytes while holding some, so shards that share a
    budget cannot block each other for ever. If the consumer stops early (by closing the generator),
    reads that have not started are cancelled. Items are consumed no further ahead than the window
    and the budget allow; exceptions of ``read`` are raised in their turn.
    """
    if reads.executor is None:
        for item in items:
            yield item, read(item)
        return
    pending: deque[_Pending[Item, Result]] = deque()
    try:
        for item in items:
            while (taken := _take(reads, len(pending), size_bytes(item))) is None:
                yield from _consume(pending, reads.budget)
            pending.append((item, taken, reads.executor.submit(read, item)))
        while pending:
            yield from _consume(pending, reads.budget)
    finally:
        for _, taken, future in pending:
            future.cancel()
            future.add_done_callback(_releasing(reads.budget, taken))


_Pending = tuple[Item, int, Future[Result]]


def _take(reads: Reads, pending: int, size_bytes: int) -> int | None:
    """Bytes acquired for one more read, or None if a pending read must be consumed first."""
    if pending == 0:
        return reads.budget.acquire(size_bytes)
    return reads.budget.try_acquire(size_bytes) if pending < reads.window else None


def _consume(
    pending: deque[tuple[Item, int, Future[Result]]], budget: ByteBudget
) -> Iterator[tuple[Item, Result]]:
    item, taken, future = pending[0]
    result = future.result()
    pending.popleft()
    try:
        yield item, result
    finally:
        budget.release(taken)


def _releasing(budget: ByteBudget, taken: int) -> Callable[[Future[Result]], None]:
    return lambda _: budget.release(taken)
