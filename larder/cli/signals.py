"""Ctrl-C, SIGTERM and SIGHUP, from a command's first line to its last.

The effect of a signal depends on the state of the command::

    loading    end at once: nothing has started                           `arm`, `loading`
    working    KeyboardInterrupt: temporary files are removed             `interrupting`
    building   ask the steps to stop, which they do between two objects   `interruptible`
    over       end at once with the status of the command                 `conclude`

A second signal ends the process at once in any state. An interrupted command has status 130 and
reports the interrupt in one line and, with --json, in one document. A signal that was ignored when
the process started (under nohup, or in a background job of a shell) stays ignored.

This is the first module that a command imports, so it imports little: until `arm` is called, Python
itself handles signals, with a traceback.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import threading

INTERRUPTED_STATUS = 130
"""Exit status of a command that a signal interrupted."""

HINT = "run the same command again to continue"
STOPPING = "stopping after the objects in progress; a second signal stops at once"

# Constants, because a handler may run while the modules that could format them are being imported.
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


class _CommandState:
    """The state of the process, for handlers.

    Attributes:
        reported: The error was written to stderr.
        printed: The document was, or is being, written to stdout.
        working: The command is working: `interrupting`.
        leaving: A handler is ending the process.
        status: Status of the command, once it is over.
    """

    def __init__(self) -> None:
        self.armed = False
        self.json = False
        self.reported = False
        self.printed = False
        self.working = False
        self.interrupted = False
        self.leaving = False
        self.status: int | None = None
        self.restore: Callable[[], None] | None = None


process = _CommandState()


def arm() -> None:
    """Handle signals from now on, until the process ends. Call it before other imports.

    Closed standard streams are reopened, so that files opened later do not take their place: stderr
    becomes /dev/null, and stdout remains unwritable.
    """
    process.armed, process.json = True, "--json" in sys.argv[1:]
    for number in _heard():
        signal.signal(number, _end)
    _open_closed_streams()
    # The first function registered is the last to run. Before the process ends, Python resets
    # handlers, but not this.
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
            os.open(os.devnull, flags)  # gets the lowest free number
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


@contextmanager
def interrupting(*, json: bool) -> Iterator[None]:
    """Make signals raise `KeyboardInterrupt` within a ``with`` block, so that it cleans up."""

    def interrupt(_number: int, _frame: object) -> None:
        if process.interrupted:
            _leave()
        process.interrupted = True
        raise KeyboardInterrupt

    process.json, process.working = json, True
    process.interrupted = process.reported = process.printed = False
    try:
        with _answering(interrupt):
            yield
    finally:
        process.working = process.interrupted = False


@contextmanager
def loading() -> Iterator[None]:
    """Make signals end a command at once within a ``with`` block that only imports and reads.

    The code being imported could swallow an exception. Imported objects stay, so the garbage
    collector skips them, now and later: a search takes a tenth of the time of a start.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        with _answering(_end) if process.armed else nullcontext():
            yield
    finally:
        if collecting:
            gc.freeze()
            gc.enable()


@contextmanager
def interruptible(stop: threading.Event, say: Callable[[str], None]) -> Iterator[None]:
    """Make a signal set ``stop`` within a ``with`` block; a second signal ends the process at once.

    Raising an exception at an arbitrary point in the main thread, as Python and Prefect do, is not
    safe while other threads work: they may wait for ever for an import lock that remains held.

    Raises:
        KeyboardInterrupt: The user interrupted the run, and the steps have stopped.
    """
    import threading

    from larder.errors import LarderError

    if process.interrupted:  # and other code caught the exception
        raise KeyboardInterrupt
    interrupted = threading.Event()
    saying: list[threading.Thread] = []

    def interrupt(_number: int, _frame: object) -> None:
        if interrupted.is_set():
            _leave()
        interrupted.set()
        stop.set()
        saying.append(threading.Thread(target=say, args=(STOPPING,)))  # the main thread may write
        saying[-1].start()

    token = _handlers.set(dict.fromkeys(_heard(), interrupt))
    try:
        with _answering(interrupt), _awaiting(saying):
            yield
    except LarderError:
        if interrupted.is_set():
            process.interrupted = process.working
            raise KeyboardInterrupt from None
        raise
    finally:
        _handlers.reset(token)


@contextmanager
def _awaiting(saying: list[threading.Thread]) -> Iterator[None]:
    """Wait for messages in progress before any code after the ``with`` block."""
    try:
        yield
    finally:
        for thread in saying:
            thread.join()


def hear_signals() -> None:
    """Restore the handlers that `interruptible` set, if this runs within it.

    Prefect sets its own handler at the start of a flow run. In a run of a worker, this handler
    stays, and raises ``TerminationSignal``.
    """
    for number, handler in (_handlers.get() or {}).items():
        signal.signal(number, handler)


@contextmanager
def restoring(restore: Callable[[], None]) -> Iterator[None]:
    """Call ``restore`` if a signal ends the process at once within a ``with`` block.

    A signal handler calls it, so it must not wait for a lock.
    """
    before, process.restore = process.restore, restore
    try:
        yield
    finally:
        process.restore = before


def conclude(status: int) -> None:
    """Record that the command is over: from now on, a signal ends it at once with ``status``."""
    process.status = status


@contextmanager
def _answering(handler: _Handler) -> Iterator[None]:
    before: dict[signal.Signals, Any] = {}
    try:
        for number in _heard():
            # Only the main thread may set handlers, and only it receives signals.
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
    """End the process as interrupted, and report that if it was not reported yet."""
    if not process.leaving:
        process.leaving = True
        if process.restore:
            process.restore()
        if not process.reported:
            _write(2, _LINE)
        if process.json and not process.printed:
            _write(1, _DOCUMENT)
    os._exit(INTERRUPTED_STATUS)


def _write(descriptor: int, text: str) -> None:
    with suppress(OSError):
        os.write(descriptor, text.encode())
