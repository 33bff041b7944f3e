"""How a stage reports its progress, without knowing who receives it.

A stage gets a `Progress` and calls it from any thread. `NullProgress` ignores everything; the
command line has one that draws.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Lock
from typing import Any, Protocol

from larder.errors import FatalError


class Progress(Protocol):
    """Receives the progress of stages. Every method may be called from any thread."""

    def start(self, stage: str, *, objects: int | None = None, bytes: int | None = None) -> None:
        """Stage ``stage`` starts; the arguments are its totals, if they are known."""

    def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
        """Add to the objects and bytes of ``stage`` that are done."""

    def finish(self, stage: str) -> None:
        """Stage ``stage`` is done."""

    def restart(self, reason: str) -> None:
        """The run starts again from its first stage; ``reason`` is a line for the user."""


class TimedProgress(Progress, Protocol):
    """A `Progress` that also records how long each stage took and how much it did."""

    def seconds(self) -> float:
        """Since this began to listen."""

    def stages(self) -> dict[str, dict[str, Any]]:
        """For each stage, in the order in which they started: ``seconds``, ``objects``, ``bytes``.

        ``objects`` is the number of whatever the stage counts. If a stage is still running,
        ``seconds`` is the time until now.
        """


class NullProgress:
    """Ignores everything."""

    def start(self, stage: str, *, objects: int | None = None, bytes: int | None = None) -> None:
        """Ignored."""

    def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
        """Ignored."""

    def finish(self, stage: str) -> None:
        """Ignored."""

    def restart(self, reason: str) -> None:
        """Ignored."""


class CancellableProgress:
    """Forwards every call until ``stop`` is set, so that a stage stops between two objects. Then
    the constructor and every call except `finish` raise ``run.interrupted``.
    """

    def __init__(self, listener: Progress, stop: Event) -> None:
        self._listener = listener
        self._stop = stop
        self._check()

    def start(self, stage: str, *, objects: int | None = None, bytes: int | None = None) -> None:
        self._check()
        self._listener.start(stage, objects=objects, bytes=bytes)

    def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
        self._check()
        self._listener.advance(stage, objects=objects, bytes=bytes)

    def finish(self, stage: str) -> None:
        self._listener.finish(stage)

    def restart(self, reason: str) -> None:
        self._check()
        self._listener.restart(reason)

    def _check(self) -> None:
        if self._stop.is_set():
            raise FatalError(
                "run.interrupted", "stopped: another batch failed, or the run was interrupted"
            )


@dataclass(slots=True)
class _Stage:
    """``began`` is shifted by the time that the stage was paused."""

    began: float
    ended: float | None = None
    objects: int = 0
    bytes: int = 0

    def seconds(self, now: float) -> float:
        return (now if self.ended is None else self.ended) - self.began


class StageTimes:
    """The `TimedProgress` that forwards every call."""

    def __init__(
        self, listener: Progress | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._listener = listener or NullProgress()
        self._clock = clock
        self._lock = Lock()
        self._stages: dict[str, _Stage] = {}
        self._began = clock()

    def start(self, stage: str, *, objects: int | None = None, bytes: int | None = None) -> None:
        with self._lock:
            known = self._stage(stage)
            if known.ended is not None:  # the time in between does not count
                known.began += self._clock() - known.ended
                known.ended = None
        self._listener.start(stage, objects=objects, bytes=bytes)

    def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
        with self._lock:
            known = self._stage(stage)
            known.objects += objects
            known.bytes += bytes
        self._listener.advance(stage, objects=objects, bytes=bytes)

    def finish(self, stage: str) -> None:
        with self._lock:
            known = self._stage(stage)
            known.ended = self._clock() if known.ended is None else known.ended
        self._listener.finish(stage)

    def restart(self, reason: str) -> None:
        """See `Progress.restart`; ends all stages. Their sums are those of all attempts."""
        with self._lock:
            now = self._clock()
            for stage in self._stages.values():
                stage.ended = now if stage.ended is None else stage.ended
        self._listener.restart(reason)

    def seconds(self) -> float:
        return self._clock() - self._began

    def stages(self) -> dict[str, dict[str, Any]]:
        with self._lock:
            now = self._clock()
            return {
                name: {
                    "seconds": round(stage.seconds(now), 3),
                    "objects": stage.objects,
                    "bytes": stage.bytes,
                }
                for name, stage in self._stages.items()
            }

    def _stage(self, name: str) -> _Stage:
        return self._stages.setdefault(name, _Stage(self._clock()))
