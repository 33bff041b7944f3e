"""Limits the bytes per second that a run reads, and that it writes, through its stores.

Each process of the run has an equal share of the limit during a stage; the share of a lost process
stays unused. Server-side copies do not count. Upload parts do not count either: their bytes were
read before, at the same rate.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from larder.machine import processes_together
from larder.store.base import (
    Buffer,
    ObjectInfo,
    Reader,
    ReadOptions,
    Store,
    WriteOptions,
    Writer,
)
from larder.store.delegate import DelegatingReader, DelegatingStore, DelegatingWriter
from larder.store.interrupt import check_wait

if TYPE_CHECKING:
    from typing import Unpack

BURST_SECONDS = 0.1
"""Burst after a pause: the bytes that the limit allows in this time may move at once."""

SLICE_SECONDS = 0.1
"""Longest wait of a thread between checks for a stop of the run."""


class Bandwidth:
    """Lets threads move bytes, on average no more per second than the limit.

    Bytes are granted in the order of requests. In any T seconds, at most ``max_bytes_per_second *
    (T + BURST_SECONDS)`` bytes are granted. A request for more than a burst waits for the time that
    its bytes take.
    """

    def __init__(
        self,
        max_bytes_per_second: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        assert max_bytes_per_second > 0
        self._rate = max_bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._due_seconds = clock() - BURST_SECONDS
        """Time at which all granted bytes have moved at the limit, less the burst."""

    def take(self, size_bytes: int) -> None:
        """Wait until bytes may move. If this thread's work is stopped, other requests get them."""
        seconds = size_bytes / self._rate
        with self._lock:
            begin_seconds = max(self._due_seconds, self._clock() - BURST_SECONDS)
            self._due_seconds = due_seconds = begin_seconds + seconds
        try:
            while (left_seconds := due_seconds - self._clock()) > 0:
                check_wait()
                self._sleep(min(left_seconds, SLICE_SECONDS))
        except BaseException:
            with self._lock:
                self._due_seconds -= seconds
            raise


_shares = 1


def share_bandwidth(count: int) -> None:
    """Set the number of processes, on all machines, that share the limit of a run."""
    global _shares
    _shares = count


class ThrottledStore(DelegatingStore):
    """A store with limited bandwidth; stores of a process with equal limits share it, each way."""

    def __init__(self, inner: Store, max_bytes_per_second: float) -> None:
        super().__init__(inner)
        rate = max_bytes_per_second / max(_shares, processes_together())
        self._read, self.written = _both_ways(rate)

    def open(self, key: str, **options: Unpack[ReadOptions]) -> Reader:
        return _ThrottledReader(super().open(key, **options), self._read)

    def get(self, key: str, **options: Unpack[ReadOptions]) -> bytes:
        data = super().get(key, **options)
        self._read.take(len(data))
        return data

    def put(self, key: str, data: Buffer, **options: Unpack[WriteOptions]) -> ObjectInfo:
        self.written.take(len(data))
        return super().put(key, data, **options)

    def upload(self, key: str, path: Path) -> ObjectInfo:
        self.written.take(path.stat().st_size)
        return super().upload(key, path)

    def writer(self, key: str, *, like: ObjectInfo | None = None, sync: bool = True) -> Writer:
        return _ThrottledWriter(self, key, self.inner.writer(key, like=like, sync=sync))


class _ThrottledReader(DelegatingReader):
    def __init__(self, inner: Reader, bandwidth: Bandwidth) -> None:
        super().__init__(inner)
        self._bandwidth = bandwidth

    def __iter__(self) -> Iterator[Buffer]:
        for buffer in self.inner:
            self._bandwidth.take(len(buffer))
            yield buffer


class _ThrottledWriter(DelegatingWriter):
    store: ThrottledStore

    def write(self, data: Buffer) -> None:
        self.store.written.take(len(data))
        super().write(data)


@cache
def _both_ways(rate: float) -> tuple[Bandwidth, Bandwidth]:
    return Bandwidth(rate), Bandwidth(rate)
