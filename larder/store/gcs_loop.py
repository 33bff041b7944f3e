"""The thread in which the process's GCS clients run: gcsfs is asynchronous, stores are not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from larder.store.interrupt import interrupted_by

__all__ = ["LoopThread"]

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own. May be used by many threads."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        # A daemon, so that a process that ends in an error does not wait for it.
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="larder-gcs", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for the result of a coroutine; if the wait is interrupted, it is cancelled.

        Raises:
            FatalError: ``run.interrupted``: what this thread works under was stopped.
        """
        interrupt = interrupted_by()
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        request = _Request(future)
        try:
            if interrupt:
                interrupt.enter(request)
            return future.result()
        except BaseException:
            future.cancel()
            if interrupt:
                interrupt.check()
            raise
        finally:
            if interrupt:
                interrupt.leave(request)

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine, without waiting for it."""
        if self.loop.is_closed():
            work.close()
        else:
            asyncio.run_coroutine_threadsafe(work, self.loop)

    def soon(self, call: Callable[[], object]) -> None:
        """Make a call in the thread, without waiting for it."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(call)

    def close(self) -> None:
        """End the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class _Request:
    """What ends a request, as closing its socket would."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def shutdown(self, how: int, /) -> None:
        """Cancel it."""
        del how
        self._future.cancel()
