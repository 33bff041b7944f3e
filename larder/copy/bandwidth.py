"""A limit on the bytes per second that a copy moves, shared by all of its threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

BURST_SECONDS = 0.1
"""How much may be moved at once after a pause: as much as the limit allows in this time."""

SLICE_SECONDS = 0.1
"""How long a thread waits at most before it looks again whether the run was stopped."""


class Bandwidth:
    """Lets threads move bytes, on average no more per second than the limit.

    Bytes are granted in the order in which threads ask for them. In any time of T seconds, at most
    ``max_bytes_per_second * (T + BURST_SECONDS)`` bytes are granted, however large the requests
    are: whoever asks for more than a burst waits for the time that its bytes take.
    """

    def __init__(
        self,
        max_bytes_per_second: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        assert max_bytes_per_second is None or max_bytes_per_second > 0
        self._rate = max_bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._due_seconds = clock() - BURST_SECONDS
        """When everything granted so far has been moved at the limit, less the burst."""

    @property
    def max_bytes_per_second(self) -> float | None:
        return self._rate

    def share(self, count: int) -> Bandwidth:
        """The limit of one of several concurrent batches, which may be in other processes."""
        rate = self._rate / count if self._rate else None
        return Bandwidth(rate, clock=self._clock, sleep=self._sleep)

    def take(self, size_bytes: int, stop: Callable[[], object] = lambda: None) -> None:
        """Wait until bytes may be moved; ``stop`` is called at least every `SLICE_SECONDS`, and may
        raise an error: the bytes are left to the others.
        """
        if self._rate is None:
            return
        seconds = size_bytes / self._rate
        due_seconds = self._reserve(seconds)
        try:
            self._wait(due_seconds, stop)
        except BaseException:
            self._give_back(seconds)
            raise

    def _reserve(self, seconds: float) -> float:
        with self._lock:
            begin_seconds = max(self._due_seconds, self._clock() - BURST_SECONDS)
            self._due_seconds = begin_seconds + seconds
            return self._due_seconds

    def _give_back(self, seconds: float) -> None:
        with self._lock:
            self._due_seconds -= seconds

    def _wait(self, due_seconds: float, stop: Callable[[], object]) -> None:
        while (left_seconds := due_seconds - self._clock()) > 0:
            stop()
            self._sleep(min(left_seconds, SLICE_SECONDS))
