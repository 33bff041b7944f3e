"""Ends what a run waits for when it is stopped, so that it does not wait for a slow network."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from larder.errors import FatalError

__all__ = ["INTERRUPTED", "Endable", "Interrupt", "interrupted_by"]

INTERRUPTED = "run.interrupted"
"""The code of the error that ends what was stopped."""

_current = threading.local()


class Endable(Protocol):
    """A request of `larder.store.gcs_loop` in progress."""

    def shutdown(self, how: int, /) -> None:
        """End the request."""


class Interrupt:
    """Whether the work of some threads was stopped: what waits under it asks again and again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: set[Endable] = set()
        self._stopped = threading.Event()

    @contextmanager
    def active(self) -> Iterator[None]:
        """What this thread does within a ``with`` block ends when this is stopped."""
        before = getattr(_current, "interrupt", None)
        _current.interrupt = self
        try:
            yield
        finally:
            _current.interrupt = before

    def stop(self) -> None:
        """End the work in progress, and refuse more."""
        self._stopped.set()
        with self._lock:
            requests, self._requests = self._requests, set()
            for one in requests:
                one.shutdown(socket.SHUT_RDWR)

    def enter(self, one: Endable) -> None:
        """A request begins.

        Raises:
            FatalError: ``run.interrupted``.
        """
        with self._lock:
            self._requests.add(one)
        self.check()

    def leave(self, one: Endable) -> None:
        """A request has ended."""
        with self._lock:
            self._requests.discard(one)

    def check(self) -> None:
        """Raise an error if this was stopped.

        Raises:
            FatalError: ``run.interrupted``.
        """
        if self._stopped.is_set():
            raise FatalError(INTERRUPTED, "stopped")

    def sleep(self, seconds: float) -> None:
        """Wait, but not longer than until this is stopped.

        Raises:
            FatalError: ``run.interrupted``.
        """
        self._stopped.wait(seconds)
        self.check()


def interrupted_by() -> Interrupt | None:
    """What this thread works under."""
    current: Interrupt | None = getattr(_current, "interrupt", None)
    return current
