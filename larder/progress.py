"""How a stage says how far it is, without knowing who listens.

A stage is given a `Progress` and calls it from any thread. `NullProgress` listens to nobody;
the command line has one that draws.
"""

from __future__ import annotations

from threading import Event
from typing import Protocol

from larder.errors import FatalError

__all__ = ["NullProgress", "Progress", "Stoppable"]


class Progress(Protocol):
    """Listens to the progress of stages. Every method may be called from any thread."""

    def start(self, stage: str, *, objects: int | None = None, bytes: int | None = None) -> None:
        """Stage ``stage`` begins; its totals, where they are known."""

    def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
        """So many more objects and bytes of ``stage`` are done."""

    def finish(self, stage: str) -> None:
        """Stage ``stage`` is done."""


class NullProgress:
    """Listens to nobody."""

    def start(self, stage: str, *, objects: int | None = None, bytes: int | None = None) -> None:
        """Ignored."""

    def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
        """Ignored."""

    def finish(self, stage: str) -> None:
        """Ignored."""


class Stoppable:
    """Passes on what it is told, until an event is set: so a stage stops between two objects.

    Args:
        listener: Who listens.
        stop: From when it is set, every call but `finish` raises `FatalError`
            ``run.interrupted``, as does making one.
    """

    def __init__(self, listener: Progress, stop: Event) -> None:
        self._listener = listener
        self._stop = stop
        self._check()

    def start(self, stage: str, *, objects: int | None = None, bytes: int | None = None) -> None:
        """See `Progress.start`."""
        self._check()
        self._listener.start(stage, objects=objects, bytes=bytes)

    def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
        """See `Progress.advance`."""
        self._check()
        self._listener.advance(stage, objects=objects, bytes=bytes)

    def finish(self, stage: str) -> None:
        """See `Progress.finish`."""
        self._listener.finish(stage)

    def _check(self) -> None:
        if self._stop.is_set():
            raise FatalError("run.interrupted", "stopped: another batch failed, or the user did")
