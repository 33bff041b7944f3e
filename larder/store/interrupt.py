"""Ends the waits of a stopped run, so that it does not hang on a slow network."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from larder.errors import FatalError
from larder.progress import Progress, check_stopped

INTERRUPTED = "run.interrupted"
"""The code of the error that ends stopped work."""

T = TypeVar("T")
P = ParamSpec("P")

Answers = SimpleQueue[tuple[Any, BaseException | None]]
"""Results of threads, or their errors. Futures are not used: an interrupt may leave a future's lock
taken, and its thread would wait for ever. The interpreter's own locks have no such moment.
"""

_GRACE_SECONDS = 2.0
_TURN_SECONDS = 0.1
_current = threading.local()


class Interrupt:
    """A stop signal for the work of some threads, which their waits check regularly.

    The outer signal stops this work too. A call of this work is repeated for at most
    ``patience_seconds``. There is no lock, as the garbage collector may stop work in any thread.
    """

    def __init__(self, outer: Interrupt | None = None, patience_seconds: float = math.inf) -> None:
        self._is_stopped = False
        self._outer = outer
        self._patience_seconds = patience_seconds

    def patience_seconds(self, elapsed_seconds: float) -> float:
        """Return for how long a call that began ``elapsed_seconds`` ago is repeated in all."""
        outer_seconds = self._outer.patience_seconds(elapsed_seconds) if self._outer else math.inf
        return min(self._patience_seconds, outer_seconds)

    @property
    def stopped(self) -> bool:
        return self._is_stopped or (self._outer is not None and self._outer.stopped)

    def active(self) -> AbstractContextManager[None]:
        """Let a stop end this thread's work within a ``with`` block."""
        return _during("interrupt", self)

    def stop(self) -> None:
        """End the work in progress, and refuse more."""
        self._is_stopped = True

    def check(self) -> None:
        """Raise a FatalError, ``run.interrupted``, if the work was stopped."""
        if self.stopped:
            raise FatalError(INTERRUPTED, "stopped")

    def sleep(self, seconds: float) -> None:
        """Wait; raise a FatalError, ``run.interrupted``, soon after a stop."""
        until = time.monotonic() + seconds
        while not self.stopped and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _TURN_SECONDS))
        self.check()


class _Grace(Interrupt):
    """A stop signal that follows the outer signal by a moment."""

    def __init__(self, outer: Interrupt) -> None:
        super().__init__(outer)
        self._until: float | None = None

    @property
    def stopped(self) -> bool:
        if not super().stopped:
            return False
        self._until = self._until or time.monotonic() + _GRACE_SECONDS
        return time.monotonic() >= self._until


@contextmanager
def grace() -> Iterator[None]:
    """Let requests within a ``with`` block run for a moment after a stop.

    For requests that begin or abort an upload: a leftover upload would cost money.
    """
    interrupt = interrupted_by()
    with _Grace(interrupt).active() if interrupt else nullcontext():
        yield


def interrupted_by() -> Interrupt | None:
    current: Interrupt | None = getattr(_current, "interrupt", None)
    return current


def stopping_waits(progress: Progress | None) -> AbstractContextManager[None]:
    """End this thread's waits for a limit within a ``with`` block once ``progress`` is stopped."""
    return _during("progress", progress)


class _during:  # noqa: N801 - a context manager
    """Set a value of this thread within a ``with`` block."""

    def __init__(self, name: str, value: object) -> None:
        self._name, self._value = name, value

    def __enter__(self) -> None:
        self._before = getattr(_current, self._name, None)
        setattr(_current, self._name, self._value)

    def __exit__(self, *_: object) -> None:
        setattr(_current, self._name, self._before)


def check_wait() -> None:
    """Raise a FatalError, ``run.interrupted``, if this thread's work was stopped."""
    if interrupt := interrupted_by():
        interrupt.check()
    check_stopped(getattr(_current, "progress", None))


def in_thread(pool: Executor, call: Callable[[], T]) -> Future[T]:
    """Make a call in another thread; a stop of this thread's work ends the call too."""
    return pool.submit(stopped_with_caller(call))


def stopped_with_caller(call: Callable[P, T]) -> Callable[P, T]:
    """Return the function for other threads; a stop of this thread's work ends its calls too."""
    interrupt, progress = interrupted_by(), getattr(_current, "progress", None)

    def work(*arguments: P.args, **options: P.kwargs) -> T:
        with interrupt.active() if interrupt else nullcontext(), stopping_waits(progress):
            return call(*arguments, **options)

    return work


def put_answer(call: list[Any]) -> None:
    """Put the result or the error of a function; ``call`` has the answers and the function.

    An error refers to this frame and its callers, which must not refer to the answers. Else an
    error that is never taken would refer to itself, and keep its samples until a collection.
    """
    answers, function = call
    call.clear()
    try:
        answers.put((function(), None))
    except BaseException as error:  # noqa: BLE001 - raised again by `result_of`
        answers.put((None, error))
    finally:
        del answers


def result_of(answers: Answers) -> Any:
    """Return the next result, or raise its error."""
    value, error = answers.get()
    try:
        if error is not None:
            raise error
        return value
    finally:
        del error  # refers to this frame
