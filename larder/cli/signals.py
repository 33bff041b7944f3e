"""Ctrl-C, SIGTERM and SIGHUP, from a command's first line to its last.

What a signal does depends on how far the command is::

    loading    end at once: nothing has begun                             `arm`, `loading`
    working    KeyboardInterrupt: temporary files go                      `interrupting`
    building   the steps are asked to stop, and do between two objects    `interruptible`
    over       end at once with the status that the command has           `conclude`

A second signal ends the process at once, whatever it is doing. Interrupted, the status is 130, and
it is said in one line and, with --json, in one document. A signal that was ignored when the process
began (under nohup, or in a job that a shell put into the background) stays ignored.

This is the first module that a command imports, so it imports little: before `arm` is called,
Python answers a signal, with a traceback.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import threading

__all__ = [
    "HINT",
    "INTERRUPTED",
    "arm",
    "conclude",
    "hear_signals",
    "interruptible",
    "interrupting",
    "loading",
    "process",
    "restoring",
]

INTERRUPTED = 130
"""Exit status of a command that a signal interrupted."""

HINT = "run the same command again to carry on"
STOPPING = "stopping after the objects under way; a second signal stops at once"

# As constants, because a handler may run while the modules that could make them are half imported.
_LINE = f"error[run.interrupted]: interrupted; {HINT}\n"
_DOCUMENT = f"""\
{{
  "error": {{
    "code": "run.interrupted",
    "message": "interrupted",
    "where": "",
    "hint": "{HINT}"
  }}
}}
"""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_Handler = Callable[[int, object], None]
_handlers: ContextVar[dict[signal.Signals, _Handler] | None] = ContextVar("handlers", default=None)


class _Process:
    """What a handler has to know of the process that it is in.

    Attributes:
        armed: `arm` was called: this process is a command's.
        json: --json was given.
        told: The error is on stderr.
        printed: The document is on stdout, or on its way there.
        working: The command works: `interrupting`.
        interrupted: A signal came meanwhile.
        leaving: A handler is ending the process.
        status: Of the command, once it is over.
        restore: Leaves the terminal as it was.
    """

    def __init__(self) -> None:
        self.armed = False
        self.json = False
        self.told = False
        self.printed = False
        self.working = False
        self.interrupted = False
        self.leaving = False
        self.status: int | None = None
        self.restore: Callable[[], None] | None = None


process = _Process()


def arm() -> None:
    """Answer signals from now on, to the very end of the process. Call it before other imports.

    Closed standard streams are opened, so that no file that is opened later takes their place:
    stderr leads nowhere, and stdout stays one that cannot be written.
    """
    process.armed, process.json = True, "--json" in sys.argv[1:]
    for number in _heard():
        signal.signal(number, _end)
    _open_closed_streams()
    # The first to be registered is the last to run. Python resets handlers, but not this, before
    # the process is quite gone.
    atexit.register(_ignore)


def _heard() -> list[signal.Signals]:
    return [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


def _ignore() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _open_closed_streams() -> None:
    for descriptor, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, flags)  # takes the lowest number that is free
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


@contextmanager
def interrupting(*, json: bool) -> Iterator[None]:
    """Let a signal raise `KeyboardInterrupt` within a ``with`` block, so that it cleans up.

    Args:
        json: Whether --json was given.
    """

    def interrupt(_number: int, _frame: object) -> None:
        if process.interrupted:
            _leave()
        process.interrupted = True
        raise KeyboardInterrupt

    process.json, process.working = json, True
    process.interrupted = process.told = process.printed = False
    try:
        with _answering(interrupt):
            yield
    finally:
        process.working = process.interrupted = False


@contextmanager
def loading() -> Iterator[None]:
    """Let a signal end a command at once within a ``with`` block that only imports and reads.

    An exception could be swallowed by what is being imported.
    """
    if not process.armed:
        yield
        return
    with _answering(_end):
        yield


@contextmanager
def interruptible(stop: threading.Event, say: Callable[[str], None]) -> Iterator[None]:
    """Let a signal set ``stop`` within a ``with`` block; at a second one the process ends at once.

    To raise an exception in the main thread wherever that is, as Python and Prefect do, is no good
    while other threads work: it can leave the import lock taken, for which they then wait for ever.

    Args:
        stop: Asks the steps to stop.
        say: Shows a line.

    Raises:
        KeyboardInterrupt: The user interrupted, and the steps have stopped.
    """
    import threading

    from larder.errors import LarderError

    if process.interrupted:  # and something caught that
        raise KeyboardInterrupt
    interrupted = threading.Event()

    def interrupt(_number: int, _frame: object) -> None:
        if interrupted.is_set():
            _leave()
        interrupted.set()
        stop.set()
        threading.Thread(target=say, args=(STOPPING,)).start()  # the main thread may be writing

    token = _handlers.set(dict.fromkeys(_heard(), interrupt))
    try:
        with _answering(interrupt):
            yield
    except LarderError:
        if interrupted.is_set():
            process.interrupted = process.working
            raise KeyboardInterrupt from None
        raise
    finally:
        _handlers.reset(token)


def hear_signals() -> None:
    """Put the handlers back that `interruptible` set, if this runs within it.

    An orchestrator may set its own when it begins to run something.
    """
    for number, handler in (_handlers.get() or {}).items():
        signal.signal(number, handler)


@contextmanager
def restoring(restore: Callable[[], None]) -> Iterator[None]:
    """Have ``restore`` called if a signal ends the process at once within a ``with`` block.

    A handler calls it, so it may wait for no lock.
    """
    before, process.restore = process.restore, restore
    try:
        yield
    finally:
        process.restore = before


def conclude(status: int) -> None:
    """The command is over: from now on, a signal ends it at once with this status."""
    process.status = status


@contextmanager
def _answering(handler: _Handler) -> Iterator[None]:
    before: dict[signal.Signals, Any] = {}
    try:
        for number in _heard():
            # Only the main thread may, and it alone is told of signals.
            with suppress(ValueError):
                before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _end(_number: int, _frame: object) -> None:
    if process.status is not None:
        os._exit(process.status)
    _leave()


def _leave() -> NoReturn:
    """End the process as interrupted, with what is not yet said of it."""
    if not process.leaving:
        process.leaving = True
        if process.restore:
            process.restore()
        if not process.told:
            _write(2, _LINE)
        if process.json and not process.printed:
            _write(1, _DOCUMENT)
    os._exit(INTERRUPTED)


def _write(descriptor: int, text: str) -> None:
    with suppress(OSError):
        os.write(descriptor, text.encode())
