"""Ends requests in progress when a run is stopped, so that it does not wait for a slow network."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from larder.errors import FatalError

__all__ = ["INTERRUPTED", "Endable", "Interrupt", "interrupted_by"]

INTERRUPTED = "run.interrupted"
"""The code of the error that ends what was stopped."""

_current = threading.local()


class Endable(Protocol):
    """What a request in progress uses: a socket, or something with this method of one."""

    def shutdown(self, how: int, /) -> None:
        """End the request."""


class Interrupt:
    """Ends the requests of the threads that work under it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: set[Endable] = set()
        self._stopped = threading.Event()

    @contextmanager
    def active(self) -> Iterator[None]:
        """The requests that this thread sends within a ``with`` block can be ended."""
        before = getattr(_current, "interrupt", None)
        _current.interrupt = self
        try:
            yield
        finally:
            _current.interrupt = before

    def stop(self) -> None:
        """End the requests in progress, and refuse others."""
        self._stopped.set()
        with self._lock:
            sockets, self._sockets = self._sockets, set()
            for one in sockets:
                with suppress(OSError):  # closed by its server in the meantime
                    one.shutdown(socket.SHUT_RDWR)

    def enter(self, one: Endable) -> None:
        """A request is about to use a connection.

        Raises:
            FatalError: ``run.interrupted``.
        """
        with self._lock:
            self._sockets.add(one)
        self.check()

    def leave(self, one: Endable) -> None:
        """The connection is not used any more."""
        with self._lock:
            self._sockets.discard(one)

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
    found: Interrupt | None = getattr(_current, "interrupt", None)
    return found
