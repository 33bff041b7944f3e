"""Threads that work off a stream of steps.

A thread takes its next step itself. With futures, every step would wake the calling thread, which
takes as long as copying a small object.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

__all__ = ["work_off"]

Step = Callable[[], None]


def work_off(
    steps: Iterable[Step],
    run: Callable[[Step], None],
    *,
    concurrency: int,
    awake: Callable[[], None],
    wake_seconds: float,
    stop: Callable[[], None],
) -> None:
    """Run all steps in the order in which they come, several at a time.

    Args:
        steps: The steps; iterated by the threads, one at a time.
        run: Runs a step.
        concurrency: Maximum number of threads; started when there is a step for them.
        awake: Called by this thread every ``wake_seconds``.
        wake_seconds: See there.
        stop: Called if anything raises an error, so that steps in progress end soon. They are
            waited for.

    Raises:
        BaseException: The first error of a step, of ``steps`` or of ``awake``.
    """
    crew = _Crew(steps, run, concurrency)
    crew.join_one()
    try:
        while not crew.over.wait(wake_seconds):
            awake()
        crew.check()
    except BaseException:
        crew.stop()
        stop()
        raise
    finally:
        crew.wait()


class _Crew:
    def __init__(self, steps: Iterable[Step], run: Callable[[Step], None], most: int) -> None:
        self.over = threading.Event()
        self._steps = iter(steps)
        self._run = run
        self._most = most
        self._taking = threading.Lock()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._working = 0
        self._ended = False
        self._error: BaseException | None = None

    def join_one(self) -> None:
        """Start a thread, unless there are enough."""
        with self._lock:
            if len(self._threads) >= self._most or self._ended:
                return
            thread = threading.Thread(target=self._work, name=f"copy-{len(self._threads)}")
            self._threads.append(thread)
            self._working += 1
        thread.start()

    def _work(self) -> None:
        try:
            first = True
            while (step := self._next()) is not None:
                if first:
                    first = False
                    self.join_one()
                self._run(step)
        except BaseException as error:  # noqa: BLE001 - raised by `check` in the calling thread
            self._fail(error)
        finally:
            with self._lock:
                self._working -= 1
                if not self._working:
                    self.over.set()

    def _next(self) -> Step | None:
        with self._taking:
            step = None if self._ended else next(self._steps, None)
            if step is None:
                self._ended = True
            return step

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._error = self._error or error
            self._ended = True
        self.over.set()

    def check(self) -> None:
        """Raise the first error of a thread."""
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Take no more steps."""
        self._ended = True

    def wait(self) -> None:
        """Wait until all threads have ended."""
        while True:
            with self._lock:
                alive = [thread for thread in self._threads if thread.is_alive()]
                started = self._working
            if not alive and not started:
                return
            for thread in alive:
                thread.join()
