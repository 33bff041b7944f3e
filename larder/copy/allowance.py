"""What a copy may use, and how it verifies."""

from __future__ import annotations

import mmap
import threading
from dataclasses import dataclass, field
from typing import Literal

from larder.budgets import ByteBudget
from larder.config.models.copying import CopyConfig
from larder.config.urls import GIVE_UP_SECONDS
from larder.copy.uploads import UploadRecords
from larder.errors import Failure

PART_BYTES = 16 << 20
"""Size of an upload part."""

SERVER_COPY_BYTES = 5_000_000_000
"""A server copies no larger object with one request."""

_ENOUGH_BYTES = 96 << 20
"""Six upload parts at once, each on its way in and out, keep a link busy; more helps no further."""


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """The limits of one batch of copies.

    Attributes:
        budget: Bytes in memory, shared by the threads of the batch.
        verify: ``digest``: each copy is proved by a digest; ``size``: by its size, and by a digest
            only where that takes no extra request.
        part_bytes: Size of upload parts; larger objects are copied in parts.
        server_copy_bytes: Larger objects are copied in parts by the server.
        adopt: Whether to look at what is in the target first, and copy only what differs.
        buffers: Memory for parts, within the budget.
        concurrent_batches: How many share the configured limits.
        uploads: Where large objects in progress are recorded; None: nowhere.
        give_up_seconds: How long a store may fail for all objects, side by side.
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
        """The limits of one of several concurrent batches, which share the configured ones."""
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
    """Buffers of one size; larger ones are made on request, and not kept. Thread-safe.

    As many are kept as were ever in use at the same time, so a `larder.budgets.ByteBudget` that is
    held for each of them bounds their memory too.
    """

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._lock = threading.Lock()
        self._free: list[memoryview] = []

    def take(self, length: int) -> memoryview:
        """A buffer of at least so many bytes, with any content."""
        with self._lock:
            if self._free and length <= self._size_bytes:
                return self._free.pop()
        return memoryview(mmap.mmap(-1, max(1, length, self._size_bytes)))

    def give(self, buffer: memoryview) -> None:
        if len(buffer) == self._size_bytes:
            with self._lock:
                self._free.append(buffer)


MIN_FAILURES = 100
"""As long as fewer objects have failed, the others are tried whatever their share."""

UNAVAILABLE = 32
"""Maximum number of objects in a row for which a store kept failing, each after its retries."""

_UNAVAILABLE_CODE = "store.unavailable"


class FailureRate:
    """Counts what ends, keeps what failed, and says when to stop. Thread-safe.

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
        """Count a failure; ``is_last`` if all others were begun: the last ones are those that
        failed before, so of them any number may fail in a row.
        """
        with self._lock:
            self._ended += 1
            self._failures.append(failure)
            if failure.code == _UNAVAILABLE_CODE and not is_last:
                self._in_a_row += 1
            self._reason = self._reason or self._decide()

    @property
    def failures(self) -> tuple[Failure, ...]:
        """What has failed, ordered by key."""
        with self._lock:
            return tuple(
                sorted(self._failures, key=lambda each: each.key.encode(errors="surrogatepass"))
            )

    @property
    def reason(self) -> str:
        """Why to stop, as a clause; empty as long as there is no reason.

        It stays, whatever the objects in progress come to.
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
