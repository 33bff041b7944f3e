"""What a copy may use, and how it verifies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from larder.config.models.cluster import Copy as CopyConfig
from larder.copy.bandwidth import Bandwidth
from larder.copy.buffers import Buffers
from larder.copy.failures import FailureRate
from larder.limits import ByteBudget

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
        bandwidth: Limits the bytes that pass through this machine.
        adopt: Whether to look at what is in the target first, and copy only what differs.
        buffers: Memory for parts, within the budget.
    """

    concurrency: int
    budget: ByteBudget
    verify: Literal["digest", "size"] = "digest"
    part_bytes: int = PART_BYTES
    server_copy_bytes: int = SERVER_COPY_BYTES
    bandwidth: Bandwidth = field(default_factory=lambda: Bandwidth(None))
    failures: FailureRate = field(default_factory=lambda: FailureRate(1.0))
    adopt: bool = False
    buffers: Buffers = field(default_factory=lambda: Buffers(PART_BYTES))

    @staticmethod
    def of(config: CopyConfig, *, concurrent_batches: int = 1, adopt: bool = False) -> CopyLimits:
        """The limits of one of several concurrent batches, which share the configured ones."""
        memory_bytes = config.memory_bytes or min(config.memory, _ENOUGH_BYTES)
        return CopyLimits(
            concurrency=max(1, config.concurrency // concurrent_batches),
            budget=ByteBudget(max(1, memory_bytes // concurrent_batches)),
            verify=config.verify,
            part_bytes=PART_BYTES,
            bandwidth=Bandwidth(config.max_bytes_per_second).share(concurrent_batches),
            failures=FailureRate(config.max_failure_rate),
            adopt=adopt,
            buffers=Buffers(PART_BYTES),
        )

    def admit(self, size_bytes: int, ready: Callable[[], None]) -> None:
        """Wait until bytes may be moved; ``ready`` raises an error if the batch is stopped."""
        ready()
        self.bandwidth.take(size_bytes, ready)
