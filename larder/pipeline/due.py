"""When a receipt falls due: how much work a run that is killed may have to do again."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["RECEIPT_BYTES", "RECEIPT_SECONDS", "Due"]

RECEIPT_BYTES = 192_000_000
RECEIPT_SECONDS = 8.0
"""What may be done without a receipt, by all batches that run at once. With what is under way
meanwhile that makes 256 MB or ten seconds, but for a single object or shard that takes longer."""


class Due:
    """Adds up what was done since the last receipt.

    Args:
        beside: Batches that run at once and share `RECEIPT_BYTES`.
        clock: Seconds from any fixed moment; for tests.
    """

    def __init__(self, beside: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_bytes = max(1, RECEIPT_BYTES // beside)
        self._clock = clock
        self._bytes = 0
        self._since_seconds = clock()

    def add(self, size_bytes: int) -> None:
        """So many more bytes are done."""
        self._bytes += size_bytes

    def begin(self) -> None:
        """Count from now: a receipt was left, or there was nothing to leave one of."""
        self._bytes = 0
        self._since_seconds = self._clock()

    @property
    def now(self) -> bool:
        """Whether a receipt is due."""
        seconds = self._clock() - self._since_seconds
        return self._bytes >= self._limit_bytes or seconds >= RECEIPT_SECONDS
