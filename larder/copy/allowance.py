"""Limits of a copy: memory, concurrency and failures, and how copies are verified."""

from __future__ import annotations

import mmap
import threading
from dataclasses import dataclass, field
from typing import Literal

from larder.budgets import ByteBudget
from larder.config.models.copy_config import CopyConfig
from larder.config.urls import GIVE_UP_SECONDS
from larder.copy.uploads import UploadRecords
from larder.errors import Failure

PART_BYTES = 16 << 20
"""Size of an upload part."""

SERVER_COPY_BYTES = 5_000_000_000
"""Size of the largest object that a server copies with one request."""

_ENOUGH_BYTES = 96 << 20
"""Memory for six upload parts at once, each on its way in and out; more memory is no faster."""


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
        buffers: Memory for parts, within the budget.
        concurrent_batches: Number of batches that share the configured limits.
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
    buffers: Buffers = field(default_factory=lambda: Buffers(PART_BYTES))
    concurrent_batches: int = 1
    uploads: UploadRecords | None = None
    give_up_seconds: float = GIVE_UP_SECONDS

    @staticmethod
    def of(
        config: CopyConfig,
        *,
        concurrent_batches: int = 1,
        adopt: bool = False,
        uploads: UploadRecords | None = None,
    ) -> CopyLimits:
        """Return the limits of one batch; concurrent batches share the configured limits."""
        memory_bytes = config.memory_bytes or min(config.memory, _ENOUGH_BYTES)
        return CopyLimits(
            concurrency=max(1, config.concurrency // concurrent_batches),
            budget=ByteBudget(max(1, memory_bytes // concurrent_batches)),
            verify=config.verify,
            failures=FailureRate(config.max_failure_rate),
            adopt=adopt,
            concurrent_batches=concurrent_batches,
            uploads=uploads,
            give_up_seconds=config.give_up_seconds,
        )


class Buffers:
    """Reusable buffers of one size; larger buffers are made on request and not kept. Thread-safe.

    The pool keeps as many buffers as were ever in use at once. So a `larder.budgets.ByteBudget`
    that is held for each buffer bounds the memory of the pool.
    """

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._lock = threading.Lock()
        self._free: list[memoryview] = []

    def take(self, length: int) -> memoryview:
        """Return a buffer of at least ``length`` bytes, with any content."""
        with self._lock:
            if self._free and length <= self._size_bytes:
                return self._free.pop()
        return memoryview(mmap.mmap(-1, max(1, length, self._size_bytes)))

    def give(self, buffer: memoryview) -> None:
        if len(buffer) == self._size_bytes:
            with self._lock:
                self._free.append(buffer)


MIN_FAILURES = 100
"""Number of failures at which ``max_rate`` starts to apply."""

UNAVAILABLE = 32
"""Maximum number of objects in a row for which a store kept failing, each after its retries."""

_UNAVAILABLE_CODE = "store.unavailable"


class FailureRate:
    """Counts ended objects, keeps failures, and says when to stop. Thread-safe.

    ``max_rate`` is a share, 0 to 1.
    """

    def __init__(self, max_rate: float) -> None:
        self._max_rate = max_rate
        self._lock = threading.Lock()
        self._ended = self._in_a_row = 0
        self._failures: list[Failure] = []
        self._reason = ""

    def succeeded(self) -> None:
        with self._lock:
            self._ended += 1
            self._in_a_row = 0

    def failed(self, failure: Failure, *, is_last: bool = False) -> None:
        """Count a failure.

        ``is_last``: all objects have begun. The last steps repeat failed objects; any number of
        them may fail in a row.
        """
        with self._lock:
            self._ended += 1
            self._failures.append(failure)
            if failure.code == _UNAVAILABLE_CODE and not is_last:
                self._in_a_row += 1
            self._reason = self._reason or self._decide()

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Failures, ordered by key."""
        with self._lock:
            return tuple(
                sorted(self._failures, key=lambda each: each.key.encode(errors="surrogatepass"))
            )

    @property
    def reason(self) -> str:
        """Reason to stop, as a clause; empty while there is no reason.

        Later results do not change the reason.
        """
        with self._lock:
            return self._reason

    def _decide(self) -> str:
        if self._in_a_row >= UNAVAILABLE:
            return f"a store kept failing for {self._in_a_row:,} objects in a row"
        failed = len(self._failures)
        if failed >= MIN_FAILURES and failed > self._max_rate * self._ended:
            share = f"{failed:,} of {self._ended:,} objects failed"
            return f"{share}, more than copy.max_failure_rate ({self._max_rate:g})"
        return ""
