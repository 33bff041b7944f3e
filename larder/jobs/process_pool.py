"""Processes that do parts of a batch, such as transforming an image, for threads of this process.

Threads do not scale where the interpreter lock is held, as Pillow does while it writes a JPEG.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import LifoQueue
from typing import Any

from larder.errors import FatalError
from larder.jobs.processes import Process
from larder.store.base import Closing

_lock = threading.Lock()
_shared: dict[int, tuple[ProcessPool, int]] = {}


class ProcessPool(Closing):
    """Up to ``count`` processes, each started when it is first needed, and used again. May be used
    by many threads.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._idle: LifoQueue[Process | None] = LifoQueue()
        for _ in range(count):
            self._idle.put(None)

    def call(self, function: Callable[..., Any], *arguments: Any, unit: str, **options: Any) -> Any:
        """Wait for an idle process, and call a function there; see `Process.call`.

        If the process is killed, another process repeats the call once. If that process is killed,
        too, raises ``run.failed`` with ``unit`` as its place.
        """
        with suppress(_LostError):
            return self._call(function, *arguments, **options)
        try:
            return self._call(function, *arguments, **options)
        except _LostError as error:
            hint = "if memory is short, lower runner.workers or copy.memory_bytes; run again"
            raise FatalError("run.failed", error.message, where=unit, hint=hint) from error

    def _call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        process = self._idle.get()
        try:
            process = process or Process(self.count)
            return process.call(function, *arguments, **options)
        except FatalError as error:
            if process is None or process.answered or error.code != "run.failed":
                raise
            raise _LostError(error.code, error.message) from error
        finally:
            if process is not None and not process.answered:
                process.close()
                process = None
            self._idle.put(process)

    def close(self) -> None:
        """End the processes; no thread may be waiting for a process."""
        processes = [self._idle.get() for _ in range(self.count)]
        for process in filter(None, processes):
            process.leave()
        for process in filter(None, processes):
            process.close()
        for _ in processes:
            self._idle.put(None)


class _LostError(FatalError):
    """A process was killed."""


@contextmanager
def shared_pool(count: int) -> Iterator[ProcessPool | None]:
    """Yield the pool of this process, started by its first user and ended by its last.

    None if ``count`` is 1, as the calling threads do as well.
    """
    if count == 1:
        yield None
        return
    with _lock:
        pool, users = _shared.get(count) or (ProcessPool(count), 0)
        _shared[count] = pool, users + 1
    try:
        yield pool
    finally:
        with _lock:
            pool, users = _shared.pop(count)
            if users > 1:
                _shared[count] = pool, users - 1
        if users == 1:
            pool.close()
