"""The progress of a command on stderr: live rows in a terminal, otherwise plain lines."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TextIO

from larder.cli.signals import restoring
from larder.cli.stage import Stage, joined
from larder.progress import StageTimes
from larder.units import format_seconds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

INTERVAL_SECONDS = 5.0
_REFRESHES_PER_SECOND = 4
_CURSOR = b"\r\n\x1b[?25h"
_WIDE = 110
"""Columns that rows with bars need for a dataset such as ImageNet."""


class View(Protocol):
    """Shows stages. Calls of `started`, `advanced` and `finished` are never concurrent."""

    def open(self, stages: Callable[[], list[Stage]]) -> None:
        """Start; ``stages`` returns copies of all stages in the order in which they started."""

    def started(self, stage: Stage) -> None:
        """A stage started, or its totals became known."""

    def advanced(self, stage: Stage, now: float) -> None:
        """A stage made progress."""

    def noted(self, stage: Stage, now: float) -> None:
        """A stage reports what it is doing."""

    def finished(self, stage: Stage, now: float) -> None:
        """A stage is done."""

    def say(self, line: str) -> None:
        """Show a separate line."""

    def close(self) -> None:
        """Stop, and restore the terminal."""

    def restore(self) -> None:
        """Restore the terminal at once, whatever the main thread is doing; waits for no lock."""


class Display:
    """Receives progress (`larder.progress.TimedProgress`) from any thread and shows it: live rows
    if ``stream`` is a terminal, else plain lines, or a ``view``.

    Use it as a context manager: it restores the terminal however the block ends.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
        view: View | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._view = None if quiet else view or _view_for(stream or sys.stderr, clock)
        self._clock = clock
        self._lock = threading.Lock()
        self._stages: dict[str, Stage] = {}
        self._open = ExitStack()
        self._times = StageTimes(clock=clock)

    def start(self, stage: str, *, objects: int | None = None, bytes: int | None = None) -> None:
        """Stage ``stage`` starts; a repeated call sets its totals and keeps its counts."""
        self._times.start(stage)
        with self._lock:
            known = stage in self._stages
            entry = self._entry(stage)
            entry.ended = None
            entry.total_objects = entry.total_objects if objects is None else objects
            entry.total_bytes = entry.total_bytes if bytes is None else bytes
            if self._view and not known:
                self._view.started(entry)

    def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
        """Add to the objects and bytes of ``stage`` that are done."""
        self._times.advance(stage, objects=objects, bytes=bytes)
        with self._lock:
            entry = self._entry(stage)
            entry.objects += objects
            entry.bytes += bytes
            if self._view:
                self._view.advanced(entry, self._clock())

    def finish(self, stage: str) -> None:
        self._times.finish(stage)
        with self._lock:
            entry = self._entry(stage)
            if entry.ended is None:
                entry.ended = self._clock()
                if self._view:
                    self._view.finished(entry, entry.ended)

    def restart(self, reason: str) -> None:
        """Show why the run starts again; what is shown of its stages begins again, too."""
        self._times.restart(reason)
        self.say(reason)
        with self._lock:
            self._stages.clear()

    def seconds(self) -> float:
        return self._times.seconds()

    def stages(self) -> dict[str, dict[str, Any]]:
        return self._times.stages()

    def note(self, stage: str, text: str) -> None:
        """Stage ``stage`` has nothing to count yet; ``text`` says what it does: ``importing``."""
        with self._lock:
            entry = self._entry(stage)
            entry.note = text
            if self._view:
                self._view.noted(entry, self._clock())

    def say(self, line: str) -> None:
        """Show a separate line, such as a warning, without disturbing the rows."""
        # Not under the lock: rich redraws the rows, and for that requests copies of the stages.
        if self._view:
            self._view.say(line)

    def close(self) -> None:
        if self._view:
            self._view.close()

    def __enter__(self) -> Self:
        if self._view:
            self._open.enter_context(restoring(self._view.restore))
            self._view.open(self._copies)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
        self._open.close()

    def _entry(self, name: str) -> Stage:
        if name not in self._stages:
            self._stages[name] = Stage(name, began=self._clock())
        return self._stages[name]

    def _copies(self) -> list[Stage]:
        with self._lock:
            return [replace(stage) for stage in self._stages.values()]


def _view_for(stream: TextIO, clock: Callable[[], float]) -> View:
    if not stream.isatty():
        return PlainView(stream)
    from rich.console import Console

    console = Console(file=stream)
    return PlainView(stream) if console.is_dumb_terminal else LiveView(console, clock)


class PlainView:
    """A line when a stage starts and ends, and at most one per ``interval_seconds`` in between."""

    def __init__(self, stream: TextIO, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self._stream = stream
        self._interval_seconds = interval_seconds
        self._shown: dict[str, float] = {}

    def open(self, stages: Callable[[], list[Stage]]) -> None:
        """Nothing to prepare."""

    def started(self, stage: Stage) -> None:
        """``mirror: started, 3,000 objects, 33 MB``."""
        self._shown[stage.name] = stage.began
        self.say(f"{stage.name}: {joined('started', stage.totals_text())}")

    def advanced(self, stage: Stage, now: float) -> None:
        """``mirror: 1,200 of 3,000 objects, 13 MB of 33 MB, 12 MB/s, 2 s left``."""
        if now - self._shown.setdefault(stage.name, stage.began) >= self._interval_seconds:
            self._shown[stage.name] = now
            self.say(f"{stage.name}: {_far(stage, now)}")

    def noted(self, stage: Stage, now: float) -> None:
        """``prefect: starting a server, after 3 s``."""
        seconds = stage.seconds(now)
        after = f"after {format_seconds(seconds)}" if seconds >= 1 else ""
        self.say(f"{stage.name}: {joined(stage.note, after)}")

    def finished(self, stage: Stage, now: float) -> None:
        """``mirror: done, 3,000 objects, 33 MB in 3 s``."""
        done = joined("done", stage.objects_text() if stage.objects else "", stage.bytes_text())
        self.say(f"{stage.name}: {done} in {format_seconds(stage.seconds(now))}")

    def say(self, line: str) -> None:
        """Print the line; the work continues even if nobody can read it."""
        with suppress(OSError, ValueError):
            self._stream.write(f"{line}\n")
            self._stream.flush()

    def close(self) -> None:
        """Nothing to undo."""

    def restore(self) -> None:
        """Nothing to undo."""


class LiveView:
    """A row for each stage, redrawn in place by rich; nothing once the terminal is gone."""

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        from rich.live import Live

        self._clock = clock
        self._console = console
        self._stages: Callable[[], list[Stage]] = list
        self._live = Live(
            console=console,
            get_renderable=self.table,
            refresh_per_second=_REFRESHES_PER_SECOND,
            redirect_stdout=False,  # stdout is for the result
            vertical_overflow="visible",
        )

    def open(self, stages: Callable[[], list[Stage]]) -> None:
        """Hide the cursor and start redrawing, in a thread of rich."""
        self._stages = stages
        with suppress(OSError):
            self._live.start()

    def started(self, stage: Stage) -> None:
        """The next redraw shows it."""

    def advanced(self, stage: Stage, now: float) -> None:
        """The next redraw shows it."""

    def noted(self, stage: Stage, now: float) -> None:
        """The next redraw shows it."""

    def finished(self, stage: Stage, now: float) -> None:
        """The next redraw shows it."""

    def say(self, line: str) -> None:
        """Print a line above the rows."""
        with suppress(OSError):
            self._console.out(line, highlight=False)

    def close(self) -> None:
        """Draw the rows one last time and show the cursor."""
        with suppress(OSError):
            self._live.stop()

    def restore(self) -> None:
        """Show the cursor below the rows; rich itself would wait for its locks."""
        with suppress(OSError, ValueError):
            os.write(self._console.file.fileno(), _CURSOR)

    def table(self) -> Table:
        """The current rows; without bars in a narrow terminal."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        now, wide = self._clock(), self._console.width >= _WIDE
        table = Table.grid(padding=(0, 2 if wide else 1))
        for justify in ("left", "left", "right", "right", "right", "left"):
            table.add_column(justify=justify, no_wrap=True)
        for stage in self._stages():
            fraction = 1.0 if stage.ended is not None else stage.fraction()
            bar = ProgressBar(
                total=None if fraction is None else 1.0, completed=fraction or 0.0, width=16
            )
            objects, size, rate, rest = _cells(stage, now)
            if wide:
                table.add_row(stage.name, bar, objects, size, rate, rest)
            else:  # "1,040 of 3,000 samples" without its last word
                counts = objects if stage.waits else objects.rpartition(" ")[0]
                table.add_row(stage.name, "", counts, size, rate, rest)
        return table


def _cells(stage: Stage, now: float) -> tuple[str, str, str, str]:
    """Objects or what the stage is doing, bytes, rate, and the time left or taken."""
    if stage.waits:
        return stage.note, "", "", format_seconds(stage.seconds(now))
    known = stage.objects or (stage.total_objects and stage.ended is None)
    rest = stage.left_text(now)
    if stage.ended is not None:
        rest = f"done in {format_seconds(stage.seconds(now))}"
    objects = stage.objects_text() if known else ""
    return objects, stage.bytes_text(), stage.rate_text(now), rest


def _far(stage: Stage, now: float) -> str:
    return joined(
        stage.objects_text(), stage.bytes_text(), stage.rate_text(now), stage.left_text(now)
    )
