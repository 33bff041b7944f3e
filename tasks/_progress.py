"""Whom the tasks of a flow run tell of their progress, and how they learn that they are to stop.

Neither is a parameter of a task, because parameters are shown, hashed and may travel. Prefect's
task runner of threads hands context variables on; elsewhere nobody listens and nothing is stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event

from larder.progress import CancellableProgress, NullProgress, Progress, StageTimes

__all__ = ["also_listening", "current_progress", "listening", "stoppable", "timed"]

_listener: ContextVar[Progress] = ContextVar("listener", default=NullProgress())  # noqa: B039
_stop: ContextVar[Event | None] = ContextVar("stop", default=None)


class _Both:
    """A listener that passes on to two what it is told."""

    def __init__(self, one: Progress, other: Progress) -> None:
        self._listeners = (one, other)

    def start(self, stage: str, *, objects: int | None = None, bytes: int | None = None) -> None:
        """See `larder.progress.Progress.start`."""
        for listener in self._listeners:
            listener.start(stage, objects=objects, bytes=bytes)

    def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
        """See `larder.progress.Progress.advance`."""
        for listener in self._listeners:
            listener.advance(stage, objects=objects, bytes=bytes)

    def finish(self, stage: str) -> None:
        """See `larder.progress.Progress.finish`."""
        for listener in self._listeners:
            listener.finish(stage)


def current_progress() -> Progress:
    """Who listens; once the tasks are to stop, one that raises as soon as it is told anything.

    Raises:
        FatalError: ``run.interrupted``: they are to stop already.
    """
    stop = _stop.get()
    return CancellableProgress(_listener.get(), stop) if stop else _listener.get()


@contextmanager
def listening(progress: Progress) -> Iterator[None]:
    """Let ``progress`` hear of the tasks that run within a ``with`` block."""
    token = _listener.set(progress)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def also_listening(progress: Progress) -> Iterator[None]:
    """Let ``progress`` hear of them beside whoever does."""
    with listening(_Both(_listener.get(), progress)):
        yield


@contextmanager
def timed() -> Iterator[StageTimes]:
    """What the stages within a ``with`` block took and did, whoever else listens."""
    times = StageTimes(_listener.get())
    with listening(times):
        yield times


@contextmanager
def stoppable() -> Iterator[Event]:
    """An event that stops the tasks submitted within a ``with`` block once it is set.

    A block within a block has the same event: whatever stops a part of a run stops all of it.
    """
    event = _stop.get() or Event()
    token = _stop.set(event)
    try:
        yield event
    finally:
        _stop.reset(token)
