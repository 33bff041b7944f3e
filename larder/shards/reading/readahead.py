"""Read ahead of the consumer, in order, within a bound on the bytes in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeVar

from larder.budgets import ByteBudget
from larder.machine import usable_cores
from larder.shards.images.check import Validation
from larder.shards.model import PlannedSample
from larder.shards.reading.fetch import has_derived, sample_bytes
from larder.store.base import Readable

Item = TypeVar("Item")
Result = TypeVar("Result")

WHOLE_SHARE = 8
"""A sample is read whole if it takes at most this fraction of the memory: an eighth."""


class Reads(NamedTuple):
    """Settings for reading, shared by all shards that a process builds concurrently.

    Attributes:
        executor: Threads that read; None to read in the caller's thread.
        window: Maximum number of one shard's reads that are in progress or waiting.
        budget: Maximum bytes held by the reads of all shards.
        together: Whether small samples are read faster together.
    """

    executor: Executor | None
    window: int
    budget: ByteBudget
    together: bool = False

    @property
    def whole_bytes(self) -> int:
        """Samples larger than this, an eighth of the budget, are streamed instead of read ahead."""
        return self.budget.total_bytes // WHOLE_SHARE


def suited_concurrency(source: Readable, validate: Validation, concurrency: int) -> int:
    """Return the best number of concurrent reads for a source, at most ``concurrency``.

    Reading files in the page cache is three times as fast (measured with 1 KB) in the caller's
    thread as passing them between threads. Decoding releases the interpreter lock.
    """
    if not source.features.local_path:
        return concurrency
    return min(concurrency, usable_cores()) if validate == "decode" else 1


@contextmanager
def open_reads(concurrency: int, memory_bytes: int, *, together: bool = False) -> Iterator[Reads]:
    """Open threads for reading, and a budget of bytes read but not used; 1 means no threads."""
    budget = ByteBudget(memory_bytes)
    if concurrency == 1:
        yield Reads(None, 1, budget, together=True)
        return
    executor = ThreadPoolExecutor(concurrency, thread_name_prefix="larder-read")
    try:
        yield Reads(executor, 2 * concurrency, budget, together)
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def read_ahead(
    items: Iterable[Item],
    read: Callable[[Item], Result],
    size_bytes: Callable[[Item], int],
    reads: Reads,
) -> Generator[tuple[Item, Result], None, None]:
    """Yield each item with the result of ``read``, in order; raise exceptions in their turn.

    An item's bytes count from the submission of its read until the consumer requests the next item.
    No shard waits for bytes while holding some, so shards that share a budget cannot block each
    other for ever.
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
            future.add_done_callback(partial(_release, reads.budget, taken))


_Pending = tuple[Item, int, Future[Result]]


def _take(reads: Reads, pending: int, size_bytes: int) -> int | None:
    """Acquire bytes for one more read; None if a pending read must be consumed first."""
    if pending == 0:
        return reads.budget.acquire(size_bytes)
    return reads.budget.try_acquire(size_bytes) if pending < reads.window else None


def _consume(
    pending: deque[_Pending[Item, Result]], budget: ByteBudget
) -> Iterator[tuple[Item, Result]]:
    item, taken, future = pending[0]
    result = future.result()
    pending.popleft()
    try:
        yield item, result
    finally:
        budget.release(taken)


def _release(budget: ByteBudget, taken: int, _: Future[Result]) -> None:
    budget.release(taken)


_LOT_BYTES = 1 << 20
"""Most bytes of a lot: they fit into the processor's cache, and are worth a request."""

_MOST_SAMPLES = 1_000

_TOGETHER_SAMPLES = 256
"""The number of samples appended fastest: larger columns do not fit into the processor's cache."""

_MOST_PARTS = 8_192
"""About the most parts of a window: a writer of tars keeps a kilobyte for each."""


class Lot(NamedTuple):
    """Consecutive samples of a window that are read together, from number ``first`` on.

    ``held_bytes`` is None if the only sample is not read ahead: it is bad, too large, or needs the
    reader of an old shard's format.
    """

    window: Sequence[PlannedSample]
    first: int
    samples: Sequence[PlannedSample]
    held_bytes: int | None


def lots(
    samples: Iterable[PlannedSample], whole_bytes: int, *, together: bool = False
) -> Iterator[Lot]:
    """Divide samples into lots, without changing their order.

    Samples larger than ``whole_bytes`` are not read ahead. Set ``together`` if objects are read
    faster together.
    """
    rest = iter(samples)
    while some := tuple(islice(rest, _TOGETHER_SAMPLES if together else _MOST_SAMPLES)):
        size = max(1, _MOST_PARTS * len(some) // (sum([len(each.parts) for each in some]) or 1))
        for start in range(0, len(some), size):
            yield from _divided(some[start : start + size], whole_bytes, together=together)


def _divided(window: Sequence[PlannedSample], whole_bytes: int, *, together: bool) -> Iterator[Lot]:
    first = lot_bytes = 0
    most_bytes = min(whole_bytes, _LOT_BYTES)
    for number, sample in enumerate(window):
        size_bytes = sample_bytes(sample)
        in_ranges = sample.packed is None or sample.packed.in_ranges
        ahead = sample.bad is None and in_ranges and size_bytes <= whole_bytes
        alone = not ahead or not (together or sample.packed is not None or has_derived(sample))
        full = lot_bytes + size_bytes > most_bytes
        full = full or (window[first].packed is None) != (sample.packed is None)
        if first < number and (alone or full):
            yield Lot(window, first, window[first:number], lot_bytes)
            first, lot_bytes = number, 0
        if alone:
            yield Lot(window, number, (sample,), size_bytes if ahead else None)
            first = number + 1
        else:
            lot_bytes += size_bytes
    if first < len(window):
        yield Lot(window, first, window[first:], lot_bytes)
