"""Limits of a copy: memory, concurrency and failures, and how copies are verified."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

from larder.budgets import ByteBudget
from larder.config.urls import GIVE_UP_SECONDS
from larder.copy.uploads import UploadRecords
from larder.errors import Failure

PART_BYTES = 16 << 20
"""Size of an upload part."""

SERVER_COPY_BYTES = 5_000_000_000
"""Size of the largest object that a server copies with one request."""


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """The limits of one batch of copies.

    Attributes:
        budget: Bytes in memory, shared by the threads of the batch.
        verify: ``digest`` proves each copy by a digest. ``size`` compares sizes, and digests only
            where no extra request is needed.
        part_bytes: Size of upload parts; larger objects are copied in parts.
        server_copy_bytes: Larger objects are copied in parts by the server.
        adopt: Whether to compare objects of the target first, and copy only if they differ.
        uploads: Records of large objects in progress; None keeps no records.
        give_up_seconds: Seconds that a store may fail; concurrent objects share them.
    """

    concurrency: int
    budget: ByteBudget
    verify: Literal["digest", "size"] = "digest"
    part_bytes: int = PART_BYTES
    server_copy_bytes: int = SERVER_COPY_BYTES
    failures: FailureRate = field(default_factory=lambda: FailureRate(1.0))
    adopt: bool = False
    uploads: UploadRecords | None = None
    give_up_seconds: float = GIVE_UP_SECONDS
    _buffers: list[memoryview] = field(init=False, default_factory=list)

    @contextmanager
    def part_buffer(self, size_bytes: int) -> Iterator[memoryview]:
        """Lend memory of the budget for a part; buffers of the usual size are used again."""
        usual, buffer = size_bytes == self.part_bytes, None
        with self.budget.holding(size_bytes):
            with suppress(IndexError):  # all are in use
                buffer = self._buffers.pop() if usual else None
            buffer = buffer or memoryview(mmap.mmap(-1, size_bytes))
            try:
                yield buffer
            finally:
                if usual:
                    self._buffers.append(buffer)


MIN_FAILURES = 100
"""Number of failures at which ``max_rate`` starts to apply."""

UNAVAILABLE = 32
"""Maximum number of objects in a row for which a store kept failing, each after its retries."""


class FailureRate:
    """Counts ended objects, keeps failures, and says when to stop. Thread-safe.

    ``max_rate`` is a share, 0 to 1. ``reason`` is a clause, and empty while there is no reason to
    stop; later results do not change it.
    """

    def __init__(self, max_rate: float) -> None:
        self._max_rate = max_rate
        self._lock = threading.Lock()
        self._ended = self._in_a_row = 0
        self._failures: list[Failure] = []
        self.reason = ""

    def succeeded(self) -> None:
        with self._lock:
            self._ended += 1
            self._in_a_row = 0

    def failed(self, failure: Failure, *, is_last: bool = False) -> None:
        """Count a failure; the last steps repeat failed objects, and may all fail in a row."""
        with self._lock:
            self._ended += 1
            self._failures.append(failure)
            if failure.code == "store.unavailable" and not is_last:
                self._in_a_row += 1
            self.reason = self.reason or self._decide()

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Failures, ordered by key."""
        failures = sorted(self._failures, key=lambda each: each.key.encode(errors="surrogatepass"))
        return tuple(failures)

    def _decide(self) -> str:
        if self._in_a_row >= UNAVAILABLE:
            return f"a store kept failing for {self._in_a_row:,} objects in a row"
        failed = len(self._failures)
        if failed >= MIN_FAILURES and failed > self._max_rate * self._ended:
            share = f"{failed:,} of {self._ended:,} objects failed"
            return f"{share}, more than copy.max_failure_rate ({self._max_rate:g})"
        return ""
