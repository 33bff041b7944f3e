"""Processes that do parts of a batch, such as transforming an image, for the threads of this one.

Threads do not scale where the interpreter lock is held, as Pillow does while it writes a JPEG.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import LifoQueue
from typing import Any

from larder.errors import FatalError
from larder.jobs.processes import Process
from larder.store.base import Closing

_lock = threading.Lock()
_shared: dict[int, tuple[ProcessPool, int]] = {}


class ProcessPool(Closing):
    """Some processes, each started when it is first needed. May be used by many threads."""

    def __init__(self, count: int) -> None:
        self._idle: LifoQueue[Process | None] = LifoQueue()
        for _ in range(count):
            self._idle.put(None)
        self.count = count

    def call(self, function: Callable[..., Any], *arguments: Any, where: str, **named: Any) -> Any:
        """Call a function of a module with its arguments and ``where``, in a process that is idle.

        Raises:
            FatalError: ``run.failed``: the process was killed; ``where`` says with what.
        """
        process = self._idle.get()
        try:
            process = process or Process(self.count)
            return process.call(function, *arguments, where=where, **named)
        except FatalError as error:
            if process is None or process.answered:
                raise
            raise FatalError(error.code, error.message, where=where, hint=error.hint) from error
        finally:
            if process is not None and not process.answered:
                process.close()
                process = None
            self._idle.put(process)

    def close(self) -> None:
        """No thread may be waiting for a process."""
        for _ in range(self.count):
            process = self._idle.get()
            if process is not None:
                process.close()
        for _ in range(self.count):
            self._idle.put(None)


@contextmanager
def shared_pool(count: int) -> Iterator[ProcessPool | None]:
    """The processes of this process, started by the first and ended by the last that uses them.

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
