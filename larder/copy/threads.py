"""Runs a stream of steps in threads, as many as make it faster.

A thread takes its next step itself. With futures, every step would wake the calling thread, which
takes as long as copying a small object.

For a server nearby, few threads are enough; more threads wait for each other and cost CPU time. For
a server far away, more threads are faster. So their number is doubled while doubling makes the
steps a fifth faster, and halved again if it does not. While the process hardly uses the processor,
all threads wait for a server, and their number grows up to eightfold at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from larder.machine import processes_together, usable_cores
from larder.store.base import AHEAD

_FIRST_THREADS = 8
_STEPS_EACH = 2
_LEAST_SECONDS = 0.2
_FASTER = 1.2
_AGAIN_SECONDS = 20.0
_BUSY = 0.4
"""Share of a core that a process may use while its threads all seem to wait."""
_MOST_TIMES = 8
_WAKE_SECONDS = 0.1

Step = Callable[[], object]


def work_off(
    steps: Iterable[Step],
    run: Callable[[Step], None],
    pace: Pace,
    *,
    awake: Callable[[], None],
    stop: Callable[[], None],
) -> None:
    """Run all steps in the order in which they come, several at a time.

    The threads take steps from ``steps``, one at a time, while this thread calls ``awake`` now and
    then. After the first error, ``stop`` is called to end steps in progress soon. The error is
    raised once they have ended.
    """
    threads = _CopyThreads(steps, run, pace)
    threads.join_one()
    try:
        while not threads.over.wait(_WAKE_SECONDS):
            awake()
            pace.tell(time.monotonic(), threads.done, time.process_time())
            threads.join_one()
        if threads.error is not None:
            raise threads.error
    except BaseException:
        threads.ended = True
        stop()
        raise
    finally:
        threads.wait()


class Pace:
    """The number of threads that should run, by the speed so far."""

    def __init__(self, most: int, seconds: float, cpu_seconds: float) -> None:
        self._most = most
        self.count = min(most, _FIRST_THREADS)
        """Number of threads that should run now."""
        self._before: float | None = None
        self._settled_seconds: float | None = None
        self._since = (seconds, 0, cpu_seconds)

    @staticmethod
    def begin(most: int, *, ahead: bool = False) -> Pace:
        """Return the first pace.

        Threads with several requests ``ahead`` are one per core: more would wait for the lock.
        """
        pace = Pace(most, time.monotonic(), time.process_time())
        if ahead:
            # Not this process's share of the cores: its share of the requests is small already.
            cores = usable_cores() * processes_together()
            pace.count = max(1, min(pace.count, most // AHEAD, cores))
        return pace

    def widen(self) -> None:
        """Use at least as many threads as a copy begins with whose steps have one request each."""
        self.count = max(self.count, min(self._most, _FIRST_THREADS))

    @property
    def ahead(self) -> int:
        """Number of requests per thread, so that all threads together have at most ``most``."""
        return max(1, min(AHEAD, self._most // self.count))

    def tell(self, seconds: float, steps: int, cpu_seconds: float) -> None:
        """Adjust ``count`` by the number of steps that have ended so far."""
        began, ended, cpu = self._since
        if self._settled_seconds is not None:
            if seconds - self._settled_seconds >= _AGAIN_SECONDS:
                self._settled_seconds, self._before = None, None
                self._since = (seconds, steps, cpu_seconds)
            return
        if steps - ended < _STEPS_EACH * self.count or seconds - began < _LEAST_SECONDS:
            return
        rate = (steps - ended) / (seconds - began)
        busy = (cpu_seconds - cpu) / (seconds - began)
        self._since = (seconds, steps, cpu_seconds)
        if self._before is not None and rate < _FASTER * self._before:
            self.count = max(1, self.count // 2)
            self._settled_seconds = seconds
        elif self.count == self._most:
            self._settled_seconds = seconds
        else:
            self._before = rate
            times = max(2, min(_MOST_TIMES, int(_BUSY / max(busy, 1e-3))))
            self.count = min(self._most, times * self.count)


class _CopyThreads:
    def __init__(self, steps: Iterable[Step], run: Callable[[Step], None], pace: Pace) -> None:
        self.over = threading.Event()
        self._steps = iter(steps)
        self._run = run
        self._pace = pace
        self.done = 0
        """Number of steps that have ended."""
        self._taking = threading.Lock()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._working = 0
        self.ended = False
        """Whether no further step is taken."""
        self.error: BaseException | None = None

    def join_one(self) -> None:
        """Start one more thread, if the pace asks for it and the system allows it."""
        with self._lock:
            if self._working >= self._pace.count or self.ended:
                return
            self._threads = [one for one in self._threads if one.is_alive()]
            thread = threading.Thread(target=self._work, name=f"copy-{len(self._threads)}")
            try:
                thread.start()
            except RuntimeError:
                if not self._working:
                    raise
                return
            self._threads.append(thread)
            self._working += 1

    def _work(self) -> None:
        try:
            step = self._next()
            if step is not None:
                self.join_one()
            while step is not None:
                self._run(step)
                with self._lock:
                    self.done += 1
                    if self._working > self._pace.count:  # too many: this thread ends
                        self._working -= 1
                        return
                step = self._next()
            self._leave()
        except BaseException as error:  # noqa: BLE001 - raised by `work_off` in its thread
            self._leave(error)

    def _next(self) -> Step | None:
        with self._taking:
            step = None if self.ended else next(self._steps, None)
            if step is None:
                self.ended = True
            return step

    def _leave(self, error: BaseException | None = None) -> None:
        """End a thread that found no step, or an error in its last one."""
        with self._lock:
            self._working -= 1
            if error is not None:
                self.error, self.ended = self.error or error, True
            if error is not None or not self._working:
                self.over.set()

    def wait(self) -> None:
        # A thread may start another one before it ends.
        while alive := [thread for thread in self._threads if thread.is_alive()]:
            for thread in alive:
                thread.join()
