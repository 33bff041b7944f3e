"""The progress of a command on stderr: live rows in a terminal, otherwise plain lines."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, NamedTuple, Self, TextIO

from larder.cli.signals import restoring
from larder.progress import Progress, Stage, StageTimes
from larder.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

STAGES: dict[str, str] = {
    "inventory": "object",
    "expand": "object",
    "compare": "object",
    "plan": "object",
    "prefect": "",
    "wait": "",
    "skyplane": "",
    "mirror": "object",
    "prune": "object",
    "clean": "object",
    "inspect": "file",
    "verify": "file",
    "repair": "file",
    "shard": "sample",
    "index": "",
    "cache": "record",
    "publish": "",
    "emit": "",
    "card": "sample",
}
"""Every stage that may be shown, and the noun of its count; empty if it counts nothing."""

LINE_INTERVAL_SECONDS = 5.0
_REFRESHES_PER_SECOND = 4
_CURSOR = b"\r\n\x1b[?25h"
_WIDE = 110
"""Width of a terminal that has room for bars."""

_SETTLED_SECONDS = 1.0
_MEASURABLE_SECONDS = 0.1


class Display(StageTimes):
    """Receives progress (`larder.progress.TimedProgress`) from any thread and shows it: live rows
    if ``stream`` is a terminal, else plain lines.

    Use it as a context manager: it restores the terminal however the block ends.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
        view: PlainView | LiveView | None = None,
        listener: Progress | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(listener, clock=clock)
        self._view = view
        if not view and not quiet:
            self._view = _view_for(stream or sys.stderr, clock)
        self._open = ExitStack()

    def restart(self, reason: str) -> None:
        """Show why the run starts again, and begin the display of its stages again."""
        self.say(reason)
        super().restart(reason)
        if self._view:
            self._view.clear()

    def note(self, stage: str, text: str) -> None:
        """Show the activity of a stage that has nothing to count yet, such as ``importing``."""
        with self._lock:
            current = self._stage(stage)
            current.note = text
            if self._view:
                self._view.noted(current, self._clock())

    def say(self, line: str) -> None:
        """Show a separate line, such as a warning, without disturbing the rows."""
        if self._view:
            self._view.say(line)

    def __enter__(self) -> Self:
        if isinstance(self._view, LiveView):
            self._open.enter_context(restoring(self._view.restore))
            self._open.callback(self._view.close)
            self._view.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _started(self, stage: Stage) -> None:
        if self._view:
            self._view.started(stage)

    def _advanced(self, stage: Stage) -> None:
        if self._view:
            self._view.advanced(stage, self._clock())

    def _finished(self, stage: Stage) -> None:
        if self._view:
            self._view.finished(stage, self._clock())


def _view_for(stream: TextIO, clock: Callable[[], float]) -> PlainView | LiveView:
    if not stream.isatty():
        return PlainView(stream)
    from rich.console import Console

    console = Console(file=stream)
    return PlainView(stream) if console.is_dumb_terminal else LiveView(console, clock)


class PlainView:
    """A line when a stage starts and ends, and at most one per ``interval_seconds`` in between."""

    def __init__(self, stream: TextIO, interval_seconds: float = LINE_INTERVAL_SECONDS) -> None:
        self._stream = stream
        self._interval_seconds = interval_seconds
        self._shown: dict[str, float] = {}

    def clear(self) -> None:
        """Lines that were printed stay."""

    def started(self, stage: Stage) -> None:
        """``mirror: started, 3,000 objects, 33 MB``."""
        self._shown[stage.name] = stage.began
        self.say(f"{stage.name}: {_joined('started', *_totals(stage))}")

    def advanced(self, stage: Stage, now: float) -> None:
        """``mirror: 1,200 of 3,000 objects, 13 MB of 33 MB, 12 MB/s, 2 s left``."""
        if now - self._shown.setdefault(stage.name, stage.began) >= self._interval_seconds:
            self._shown[stage.name] = now
            self.say(f"{stage.name}: {amounts(stage, now)}")

    def noted(self, stage: Stage, now: float) -> None:
        """``prefect: starting a server, after 3 s``."""
        seconds = stage.seconds(now)
        after = f"after {format_seconds(seconds)}" if seconds >= 1 else ""
        self.say(f"{stage.name}: {_joined(stage.note, after)}")

    def finished(self, stage: Stage, now: float) -> None:
        """``mirror: done, 3,000 objects, 33 MB in 3 s``."""
        self.say(f"{stage.name}: {amounts(stage, now)}")

    def say(self, line: str) -> None:
        """Print the line; the work continues even if the stream is closed or full."""
        with suppress(OSError, ValueError):
            self._stream.write(f"{line}\n")
            self._stream.flush()


class LiveView:
    """A row for each stage, redrawn in place by rich; nothing once the terminal is gone."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        bars = [BarColumn(bar_width=16)] if console.width >= _WIDE else []
        self._rows: dict[str, TaskID] = {}
        self._clock, self._console = clock, console
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            *bars,
            TextColumn("{task.fields[row]}", markup=False),
            console=console,
            refresh_per_second=_REFRESHES_PER_SECOND,
            redirect_stdout=False,  # stdout is for the result
        )

    def open(self) -> None:
        """Hide the cursor and start redrawing, in a thread of rich."""
        with suppress(OSError):
            self._progress.start()

    def started(self, stage: Stage) -> None:
        row = _Row(stage, self._clock)
        with suppress(OSError):
            self._progress.add_task(stage.name, total=None, row=row)
        self._rows[stage.name] = self._progress.task_ids[-1]

    def advanced(self, stage: Stage, _now: float) -> None:
        """The next redraw shows it."""
        if stage.name not in self._rows:
            self.started(stage)
        done = 1.0 if stage.ended is not None else fraction(stage)
        total = None if done is None else 1.0
        self._progress.update(self._rows[stage.name], completed=done or 0.0, total=total)

    noted = finished = advanced

    def clear(self) -> None:
        for row in self._rows.values():
            self._progress.remove_task(row)
        self._rows.clear()

    def say(self, line: str) -> None:
        with suppress(OSError):
            self._console.out(line, highlight=False)

    def close(self) -> None:
        """Draw the rows one last time and show the cursor."""
        with suppress(OSError):
            self._progress.stop()

    def restore(self) -> None:
        """Show the cursor below the rows at once; rich itself would wait for its locks."""
        with suppress(OSError, ValueError):
            os.write(self._console.file.fileno(), _CURSOR)


class _Row(NamedTuple):
    """The current state of a stage, as text that is made anew at each redraw."""

    stage: Stage
    clock: Callable[[], float]

    def __format__(self, _: str) -> str:
        stage, now = self.stage, self.clock()
        counts = stage.objects or stage.bytes or stage.total_objects or stage.total_bytes
        if stage.ended is None and not counts:
            return _joined(stage.note, format_seconds(stage.seconds(now)))
        return amounts(stage, now)


def _noun(stage: Stage) -> str:
    return STAGES.get(stage.name) or "object"


def amounts(stage: Stage, now: float) -> str:
    """``1,200 of 3,000 objects, 13 MB of 33 MB, 12 MB/s, 2 s left``, at the end
    ``done, 3,000 objects, 33 MB in 3 s``.
    """
    if stage.ended is None:
        return _joined(_objects(stage), _bytes(stage), _rate(stage, now), left(stage, now))
    done = _joined("done", _objects(stage) if stage.objects else "", _bytes(stage))
    return f"{done} in {format_seconds(stage.seconds(now))}"


def fraction(stage: Stage) -> float | None:
    """Return the fraction done, in bytes if their total is known, else in objects."""
    if stage.total_bytes:
        return min(1.0, stage.bytes / stage.total_bytes)
    return min(1.0, stage.objects / stage.total_objects) if stage.total_objects else None


def _objects(stage: Stage) -> str:
    """``1,200 of 3,000 samples``, or ``1,200 samples`` while the total is unknown."""
    total = stage.total_objects
    if total is None or stage.objects == total:
        return format_count(stage.objects, _noun(stage))
    return f"{stage.objects:,} of {format_count(total, _noun(stage))}"


def _bytes(stage: Stage) -> str:
    """``13 MB of 33 MB``, at the end ``33 MB``; empty if the stage counts no bytes."""
    total = stage.total_bytes
    if not total and not stage.bytes:
        return ""
    done = format_bytes(stage.bytes)
    if total is None or stage.bytes == total or stage.ended is not None:
        return done
    return f"{done} of {format_bytes(total)}"


def _rate(stage: Stage, now: float) -> str:
    """``12 MB/s``, or ``80 objects/s`` if no bytes are counted; empty at the start."""
    seconds = stage.seconds(now)
    if seconds < _MEASURABLE_SECONDS or not (stage.bytes or stage.objects):
        return ""
    if stage.bytes:
        return f"{format_bytes(stage.bytes / seconds)}/s"
    return f"{stage.objects / seconds:,.0f} {_noun(stage)}s/s"


def left(stage: Stage, now: float) -> str:
    """``20 s left``; empty while it is unknown."""
    done, seconds = fraction(stage), stage.seconds(now)
    if stage.ended is not None or not done or seconds < _SETTLED_SECONDS:
        return ""
    return f"{format_seconds(seconds / done - seconds)} left"


def _totals(stage: Stage) -> tuple[str, str]:
    """``3,000 objects`` and ``33 MB``; empty while they are unknown."""
    objects, size = stage.total_objects, stage.total_bytes
    return (
        "" if objects is None else format_count(objects, _noun(stage)),
        "" if size is None else format_bytes(size),
    )


def _joined(*texts: str) -> str:
    return ", ".join(filter(None, texts))
