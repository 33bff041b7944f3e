"""Whom the tasks of this process tell of their progress.

A listener is no parameter of a task, because parameters are shown, hashed and may travel. A flow
run from the command line sets the display; a worker has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from larder.progress import NullProgress, Progress

__all__ = ["current_progress", "listening"]

_listeners: list[Progress] = []


def current_progress() -> Progress:
    """The listener set last in this process, or nobody."""
    return _listeners[-1] if _listeners else NullProgress()


@contextmanager
def listening(progress: Progress) -> Iterator[None]:
    """Let ``progress`` hear of the tasks that run within a ``with`` block."""
    _listeners.append(progress)
    try:
        yield
    finally:
        _listeners.remove(progress)
