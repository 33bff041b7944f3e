"""A store that stops at a chosen write, like a process that is killed there.

::

    stop = Stop(after=3)
    store = StoppingStore(MemoryStore("local"), stop)   # three writes are done; the fourth stops
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from larder.store.base import ObjectInfo, Store, Writer
from larder.store.delegate import WRITES, DelegatingStore, DelegatingWriter

T = TypeVar("T")


class Stopped(BaseException):
    """The process was killed here: not an `Exception`, so that nobody handles it."""


class Stop:
    """Counts the writes of all stores that share it, and stops all of them at one write.

    From then on every write stops, in any thread: a dead process writes nothing. ``after`` is the
    number of writes that are done first; None never stops.
    """

    def __init__(self, after: int | None = None) -> None:
        self.after = after
        self.writes: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    @property
    def stopped(self) -> bool:
        with self._lock:
            return self.after is not None and len(self.writes) > self.after

    def write(self, method: str, key: str, call: Callable[[], T]) -> T:
        """Make a call that changes a store, or raise `Stopped`."""
        with self._lock:
            self.writes.append((method, key))
            if self.after is not None and len(self.writes) > self.after:
                raise Stopped(f"{method} {key}")
            return call()


class StoppingStore(DelegatingStore):
    """Forwards calls; a `Stop` counts every write."""

    def __init__(self, inner: Store, stop: Stop) -> None:
        super().__init__(inner)
        self.stop = stop

    def around(self, method: str, key: str, call: Callable[[], T]) -> T:
        return self.stop.write(method, key, call) if method in WRITES else call()

    def writer(self, key: str, *, like: ObjectInfo | None = None, sync: bool = True) -> Writer:
        inner = self.around("writer", key, lambda: self.inner.writer(key, like=like, sync=sync))
        return _StoppingWriter(self, key, inner)


class _StoppingWriter(DelegatingWriter):
    """A writer that does not even clean up once it is stopped."""

    def abort(self) -> None:
        """Discard what was written, unless the process is dead."""
        assert isinstance(self.store, StoppingStore)
        if not self.store.stop.stopped:
            self.inner.abort()
