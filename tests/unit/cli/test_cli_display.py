"""What the display shows, with the test's own clock."""

import io
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from rich.console import Console

from larder.cli.display import Display, LiveView, PlainView, _Row
from larder.cli.signals import process
from larder.progress import Stage
from larder.units import format_seconds


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def live(stream: io.StringIO, clock: Callable[[], float]) -> LiveView:
    return LiveView(Console(file=stream, force_terminal=True, width=110, _environ={}), clock)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_plain_lines_at_the_start_the_end_and_every_five_seconds(clock):
    stream = io.StringIO()
    with Display(stream=stream, clock=clock) as display:
        display.start("mirror", objects=30, bytes=60_000_000)
        for _ in range(29):
            clock.now += 1
            display.advance("mirror", objects=1, bytes=2_000_000)
        clock.now += 1
        display.advance("mirror", objects=1, bytes=2_000_000)
        display.finish("mirror")
        display.finish("mirror")
    lines = stream.getvalue().splitlines()
    assert lines[0] == "mirror: started, 30 objects, 60.0 MB"
    assert lines[1] == "mirror: 5 of 30 objects, 10.0 MB of 60.0 MB, 2.0 MB/s, 25 s left"
    assert lines[-1] == "mirror: done, 30 objects, 60.0 MB in 30 s"
    assert len(lines) == 8


def test_unknown_totals_and_totals_that_come_later(clock):
    stream = io.StringIO()
    with Display(stream=stream, clock=clock) as display:
        display.start("inventory")
        clock.now += 5
        display.advance("inventory", objects=1000)
        display.start("inventory", objects=4000)
        clock.now += 5
        display.advance("inventory", objects=1000)
        display.finish("inventory")
    assert stream.getvalue().splitlines() == [
        "inventory: started",
        "inventory: 1,000 objects, 200 objects/s",
        "inventory: 2,000 of 4,000 objects, 200 objects/s, 10 s left",
        "inventory: done, 2,000 of 4,000 objects in 10 s",
    ]


def test_a_run_that_starts_again_counts_again(clock):
    stream = io.StringIO()
    with Display(stream=stream, clock=clock) as display:
        display.start("copy", objects=4)
        clock.now += 1
        display.advance("copy", objects=4)
        display.finish("copy")
        display.start("publish")
        display.restart("another run was first")
        clock.now += 9
        display.start("copy", objects=2)
        clock.now += 2
        display.advance("copy", objects=2)
        display.finish("copy")
    assert stream.getvalue().splitlines() == [
        "copy: started, 4 objects",
        "copy: done, 4 objects in 1.0 s",
        "publish: started",
        "another run was first",
        "copy: started, 2 objects",
        "copy: done, 2 objects in 2.0 s",
    ]


def test_quiet_shows_nothing():
    stream = Terminal()
    with Display(stream=stream, quiet=True) as display:
        display.start("mirror", objects=1)
        display.advance("mirror", objects=1)
        display.finish("mirror")
        display.say("a note")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("view_of", [PlainView, live])
def test_a_closed_stderr_does_not_stop_the_work(view_of, clock):
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

        flush = write  # type: ignore[assignment]

    with Display(view=view_of(Gone(), clock), clock=clock) as display:
        display.start("mirror")
        display.say("a note")
        display.finish("mirror")


def test_the_terminal_is_left_clean_after_an_error(clock):
    stream = Terminal()
    display = Display(view=live(stream, clock), clock=clock)

    def work() -> None:
        with display:
            display.start("mirror", objects=2)
            display.say("a note")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    written = stream.getvalue()
    assert written.count("\x1b[?25l") == 1
    assert written.count("\x1b[?25h") == 1
    assert written.rindex("\x1b[?25h") > written.rindex("mirror")
    assert "a note" in written
    assert not [thread for thread in threading.enumerate() if "refresh" in thread.name.lower()]


def test_a_terminal_gets_rows_and_a_dumb_one_lines(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(Display(stream=Terminal())._view, LiveView)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(Display(stream=Terminal())._view, PlainView)
    assert isinstance(Display(stream=io.StringIO())._view, PlainView)


def test_a_terminal_is_restored_without_a_lock():
    master, slave = os.openpty()
    with open(slave, "w") as stream:
        view = LiveView(Console(file=stream, force_terminal=True), time.monotonic)
        display = Display(view=view)
        with display, display._lock, view._progress._lock:
            assert process.restore == view.restore
            view.restore()
        assert process.restore is None
    seen = b""
    with suppress(OSError):  # the end, as Linux tells it
        while piece := os.read(master, 65536):
            seen += piece
    os.close(master)
    assert b"\r\n\x1b[?25h" in seen


def test_a_live_row_without_counts_shows_its_note():
    stage = Stage("plan", 0.0, note="reading the listing")
    assert f"{_Row(stage, lambda: 3.0)}" == f"reading the listing, {format_seconds(3.0)}"
    stage.total_objects = 5
    assert "reading" not in f"{_Row(stage, lambda: 3.0)}"
