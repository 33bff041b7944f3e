"""When a copy with many failures stops early: an outage must not end as 100,000 failed objects.

The rule, over all objects of a batch that have ended so far:

==========================================  =======================================================
what failed                                 stops the copy
==========================================  =======================================================
`MIN_FAILURES` objects or more              if they are more than ``max_rate`` of all that ended
`UNAVAILABLE` in a row or more              always: a store that kept failing, and nothing between
                                            them that was copied
==========================================  =======================================================

Access denied is not counted: it ends a copy at once.
"""

from __future__ import annotations

import threading

from larder.errors import Failure

MIN_FAILURES = 100
"""As long as fewer objects have failed, the others are tried whatever their share."""

UNAVAILABLE = 32
"""Maximum number of objects in a row for which a store kept failing, each after its retries."""

_UNAVAILABLE_CODE = "store.unavailable"


class FailureRate:
    """Counts what ends, and says when to stop; ``max_rate`` is a share, 0 to 1. Thread-safe."""

    def __init__(self, max_rate: float) -> None:
        self._max_rate = max_rate
        self._lock = threading.Lock()
        self._ended = self._failed = self._in_a_row = 0
        self._reason = ""

    def succeeded(self) -> None:
        with self._lock:
            self._ended += 1
            self._in_a_row = 0

    def failed(self, failure: Failure) -> None:
        with self._lock:
            self._ended += 1
            self._failed += 1
            if failure.code == _UNAVAILABLE_CODE:
                self._in_a_row += 1
            self._reason = self._reason or self._decide()

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
        if self._failed >= MIN_FAILURES and self._failed > self._max_rate * self._ended:
            share = f"{self._failed:,} of {self._ended:,} objects failed"
            return f"{share}, more than copy.max_failure_rate ({self._max_rate:g})"
        return ""
