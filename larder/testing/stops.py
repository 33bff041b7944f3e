"""A store that stops at a chosen write, as a process does that is killed there.

::

    stop = Stop(after=3)
    store = StoppingStore(MemoryStore("local"), stop)   # three writes are done; the fourth stops
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from larder.store.base import Buffer, Features, ObjectInfo, Reader, Store, Writer

__all__ = ["Stop", "Stopped", "StoppingStore", "StoppingWriter"]

T = TypeVar("T")


class Stopped(BaseException):
    """The process was killed here: not an `Exception`, so that nobody handles it."""


class Stop:
    """Counts the writes of all stores that share it, and stops them all at one of them.

    From then on every write stops, whichever thread makes it: a dead process writes nothing.

    Args:
        after: How many writes are done before; None never stops.
    """

    def __init__(self, after: int | None = None) -> None:
        self.after = after
        self.writes: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    @property
    def stopped(self) -> bool:
        """Whether it came to that."""
        with self._lock:
            return self.after is not None and len(self.writes) > self.after

    def write(self, method: str, key: str, call: Callable[[], T]) -> T:
        """Make a call that changes a store, or stop.

        Raises:
            Stopped: The writes allowed are done.
        """
        with self._lock:
            self.writes.append((method, key))
            if self.after is not None and len(self.writes) > self.after:
                raise Stopped(f"{method} {key}")
            return call()


class StoppingStore:
    """Passes calls on; every write is counted by a `Stop`.

    Args:
        inner: The store that is called.
        stop: Shared with other stores of the same process.
    """

    def __init__(self, inner: Store, stop: Stop) -> None:
        self.inner = inner
        self.stop = stop

    @property
    def url(self) -> str:
        """The inner store's."""
        return self.inner.url

    @property
    def features(self) -> Features:
        """The inner store's."""
        return self.inner.features

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        """See `larder.store.base.Store.list`."""
        return self.inner.list(prefix, start_after=start_after)

    def head(self, key: str) -> ObjectInfo:
        """See `larder.store.base.Store.head`."""
        return self.inner.head(key)

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        """See `larder.store.base.Store.open`."""
        return self.inner.open(key, offset=offset, length=length, if_match=if_match)

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        """See `larder.store.base.Store.get`."""
        return self.inner.get(key, offset=offset, length=length, if_match=if_match)

    def put(
        self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None
    ) -> ObjectInfo:
        """See `larder.store.base.Store.put`."""
        return self.stop.write(
            "put", key, lambda: self.inner.put(key, data, if_absent=if_absent, if_match=if_match)
        )

    def writer(self, key: str) -> StoppingWriter:
        """See `larder.store.base.Store.writer`."""
        inner = self.stop.write("writer", key, lambda: self.inner.writer(key))
        return StoppingWriter(self.stop, key, inner)

    def upload(self, key: str, path: Path) -> ObjectInfo:
        """See `larder.store.base.Store.upload`."""
        return self.stop.write("upload", key, lambda: self.inner.upload(key, path))

    def delete(self, key: str) -> None:
        """See `larder.store.base.Store.delete`."""
        self.stop.write("delete", key, lambda: self.inner.delete(key))

    def close(self) -> None:
        """Close the inner store."""
        self.inner.close()


class StoppingWriter(AbstractContextManager["StoppingWriter"]):
    """A writer whose parts count; once stopped, it does not even clean up."""

    def __init__(self, stop: Stop, key: str, inner: Writer) -> None:
        self._stop = stop
        self._key = key
        self._inner = inner

    def write(self, data: Buffer) -> None:
        """Append bytes."""
        self._stop.write("write", self._key, lambda: self._inner.write(data))

    def commit(self) -> ObjectInfo:
        """Make the object visible."""
        return self._stop.write("commit", self._key, self._inner.commit)

    def abort(self) -> None:
        """Throw away what was written, unless nobody is there to do it."""
        if not self._stop.stopped:
            self._inner.abort()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.abort()
