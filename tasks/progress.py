"""How the tasks of a flow run report progress, and how they are asked to stop.

Neither is a parameter of a task, because parameters are shown, hashed and possibly sent elsewhere.
Prefect's thread task runner passes context variables on; with others, progress is ignored and
nothing is stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event

from larder.progress import CancellableProgress, NullProgress, Progress

_listener: ContextVar[Progress] = ContextVar("listener", default=NullProgress())  # noqa: B039
_stop: ContextVar[Event | None] = ContextVar("stop", default=None)


def current_listener() -> Progress:
    """Where the tasks report to."""
    return _listener.get()


def current_progress() -> Progress:
    """The current `Progress`; once the tasks are asked to stop, one that raises at every call."""
    stop = _stop.get()
    return CancellableProgress(_listener.get(), stop) if stop else _listener.get()


@contextmanager
def listening(progress: Progress) -> Iterator[None]:
    """Report the tasks that run within a ``with`` block to ``progress``."""
    token = _listener.set(progress)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def stoppable() -> Iterator[Event]:
    """An event that, when set, stops the tasks submitted within a ``with`` block.

    Nested blocks share the event: whatever stops a part of a run stops all of it.
    """
    event = _stop.get() or Event()
    token = _stop.set(event)
    try:
        yield event
    finally:
        _stop.reset(token)
