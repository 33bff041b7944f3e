"""Progress of stages, reported to any receiver.

A stage gets a `Progress` and calls it from any thread. `NullProgress` ignores everything; the
command line has one that draws.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from threading import Event, Lock
from typing import Any, Protocol

from larder.errors import FatalError

WAIT = "wait"
"""The stage in which a run waits for another run; not counted as the run's own time."""


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
        """Return the time since this began to listen, without waits for another run."""

    def stages(self) -> dict[str, dict[str, Any]]:
        """Return ``seconds``, ``objects`` and ``bytes`` of each stage, in the order of starts."""


def stages_since(
    before: Mapping[str, Mapping[str, Any]], stages: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Subtract earlier `TimedProgress.stages`; leave out stages that did nothing since."""
    since = {}
    for name, each in stages.items():
        earlier = before.get(name, {})
        since[name] = {key: round(value - earlier.get(key, 0), 3) for key, value in each.items()}
    return {name: each for name, each in since.items() if name not in before or any(each.values())}


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
    """Forwards every call; once ``stop`` is set, all but `finish` raise ``run.interrupted``."""

    def __init__(self, listener: Progress, stop: Event) -> None:
        self.listener = listener
        self._stop = stop
        self.check()

    def start(self, stage: str, *, objects: int | None = None, bytes: int | None = None) -> None:
        self.check()
        self.listener.start(stage, objects=objects, bytes=bytes)

    def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
        self.check()
        self.listener.advance(stage, objects=objects, bytes=bytes)

    def finish(self, stage: str) -> None:
        self.listener.finish(stage)

    def restart(self, reason: str) -> None:
        self.check()
        self.listener.restart(reason)

    def check(self) -> None:
        if self._stop.is_set():
            raise FatalError(
                "run.interrupted", "stopped: another batch failed, or the run was interrupted"
            )


def check_stopped(progress: Progress | None) -> None:
    """Raise ``run.interrupted`` if a progress, or a listener behind it, is stopped."""
    while isinstance(progress, CancellableProgress):
        progress.check()
        progress = progress.listener


@dataclass(slots=True)
class Stage:
    """A stage of a run. Times are seconds of a monotonic clock; pauses move ``began`` later."""

    name: str
    began: float
    ended: float | None = None
    objects: int = 0
    bytes: int = 0
    total_objects: int | None = None
    total_bytes: int | None = None
    note: str = ""

    def seconds(self, now: float) -> float:
        return max(0.0, (now if self.ended is None else self.ended) - self.began)


class StageTimes:
    """The `TimedProgress` that forwards every call; `stages` sums the attempts after restarts."""

    def __init__(
        self, listener: Progress | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._listener = listener or NullProgress()
        self._clock = clock
        self._lock = Lock()
        self._attempts: list[dict[str, Stage]] = [{}]
        self._began = clock()

    def start(self, stage: str, *, objects: int | None = None, bytes: int | None = None) -> None:
        with self._lock:
            first = stage not in self._attempts[-1]
            current = self._stage(stage)
            if current.ended is not None:  # the time in between does not count
                current.began += self._clock() - current.ended
                current.ended = None
            if objects is not None:
                current.total_objects = objects
            if bytes is not None:
                current.total_bytes = bytes
            if first:
                self._started(current)
        self._listener.start(stage, objects=objects, bytes=bytes)

    def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
        with self._lock:
            current = self._stage(stage)
            current.objects += objects
            current.bytes += bytes
            self._advanced(current)
        self._listener.advance(stage, objects=objects, bytes=bytes)

    def finish(self, stage: str) -> None:
        with self._lock:
            current = self._stage(stage)
            if current.ended is None:
                current.ended = self._clock()
                self._finished(current)
        self._listener.finish(stage)

    def restart(self, reason: str) -> None:
        with self._lock:
            for stage in self._attempts[-1].values():
                stage.ended = self._clock() if stage.ended is None else stage.ended
            self._attempts.append({})
        self._listener.restart(reason)

    def seconds(self) -> float:
        return self._clock() - self._began - self.waited_seconds()

    def waited_seconds(self) -> float:
        waited: float = self.stages().get(WAIT, {}).get("seconds", 0.0)
        return waited

    def stages(self) -> dict[str, dict[str, Any]]:
        sums: dict[str, dict[str, Any]] = {}
        with self._lock:
            now = self._clock()
            for stage in (stage for stages in self._attempts for stage in stages.values()):
                sum_ = sums.setdefault(stage.name, {"seconds": 0.0, "objects": 0, "bytes": 0})
                sum_["seconds"] = round(sum_["seconds"] + stage.seconds(now), 3)
                sum_["objects"] += stage.objects
                sum_["bytes"] += stage.bytes
        return sums

    def current(self) -> list[Stage]:
        """Copy the stages since the last restart, in the order of their starts."""
        with self._lock:
            return [replace(stage) for stage in self._attempts[-1].values()]

    def _stage(self, name: str) -> Stage:
        return self._attempts[-1].setdefault(name, Stage(name, self._clock()))

    def _started(self, stage: Stage) -> None:
        """Hook for subclasses that show stages; one thread at a time calls these methods."""

    def _advanced(self, stage: Stage) -> None:
        """A stage made progress."""

    def _finished(self, stage: Stage) -> None:
        """A stage is done."""
