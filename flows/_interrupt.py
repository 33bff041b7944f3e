"""Ctrl-C and SIGTERM while a flow runs: the steps are asked to stop, and do between two objects.

To raise an exception in the main thread wherever that is, as Python and Prefect do, is no good
here: it can leave the import lock taken, for which Prefect's threads then wait for ever.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from larder.errors import LarderError

__all__ = ["hear_signals", "interruptible"]

_Handler = Callable[[int, object], None]
_handler: ContextVar[_Handler | None] = ContextVar("handler", default=None)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptible(
    stop: threading.Event, say: Callable[[str], None], close: Callable[[], None]
) -> Iterator[None]:
    """Let a signal set ``stop`` within a ``with`` block; at a second one the process ends at once.

    Args:
        stop: Asks the steps to stop.
        say: Shows a line.
        close: Leaves the terminal as it was.

    Raises:
        KeyboardInterrupt: The user interrupted, and the steps have stopped.
    """
    interrupted = threading.Event()

    def interrupt(number: int, _frame: object) -> None:
        if interrupted.is_set():
            close()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        interrupted.set()
        stop.set()
        line = "stopping after the objects under way; Ctrl-C once more stops at once"
        threading.Thread(target=say, args=(line,)).start()  # the main thread may be writing

    token = _handler.set(interrupt)
    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    except LarderError:
        if interrupted.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _handler.reset(token)


def hear_signals() -> None:
    """Within a flow: put the handlers back that `interruptible` set, if this runs within it.

    Prefect sets its own handler of SIGTERM when a flow begins, and takes it away at its end.
    """
    handler = _handler.get()
    for number in _SIGNALS if handler else ():
        signal.signal(number, handler)
