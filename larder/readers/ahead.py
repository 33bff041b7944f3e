"""Items that threads make ahead of the one that uses them, which may be interrupted at any time."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import closing
from itertools import islice
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from larder.readers.workers import begun_in_parent

_T = TypeVar("_T")

_END_SECONDS: Final = 10.0

Answers = SimpleQueue[tuple[Any, BaseException | None]]
"""What threads have made, or the error. Nobody waits for a future: an interrupt may leave its lock
taken, for which its thread would wait for ever. The interpreter's own locks have no such moment.
"""


def answer(answers: Answers, function: Callable[..., Any], *arguments: Any) -> None:
    """Put what a function returns, or raises."""
    try:
        answers.put((function(*arguments), None))
    except BaseException as error:  # noqa: BLE001 - raised again by who waits
        answers.put((None, error))


def result_of(answers: Answers) -> Any:
    """Wait for the next answer; its error is raised."""
    value, error = answers.get()
    try:
        if error is not None:
            raise error
        return value
    finally:
        del error  # which refers to this frame


def made_ahead(items: Generator[_T]) -> Generator[_T]:
    """The same items, each made by a thread while the one before is used.

    It ends with the iteration, and closes the items. If the garbage collector ends that, it may run
    in one of the threads, which cannot wait for each other. At the end of the program little is
    left to work with, and the threads have ended. A forked child has none.
    """
    process, owner = os.getpid(), threading.current_thread()
    asked: SimpleQueue[bool] = SimpleQueue()
    answers: Answers = SimpleQueue()
    given = (items, asked, answers)
    thread = threading.Thread(target=_make, args=given, name="larder-loader", daemon=True)
    thread.start()
    at_exit = weakref.finalize(thread, _end, thread, asked, process)
    asked.put(True)
    try:
        while item := result_of(answers):
            asked.put(True)
            yield from item
            if process != os.getpid():
                raise begun_in_parent()
    finally:
        if at_exit.detach() and process == os.getpid():
            asked.put(False)
            closer = threading.current_thread()
            if closer is owner or not closer.name.startswith("larder-"):
                thread.join()


def _make(items: Generator[Any], asked: SimpleQueue[bool], answers: Answers) -> None:
    with closing(items):
        while asked.get():
            answer(answers, list, islice(items, 1))


def _end(thread: threading.Thread, asked: SimpleQueue[bool], process: int) -> None:
    if process == os.getpid():
        asked.put(False)
        thread.join(_END_SECONDS)


def mapped(function: Callable[[_T], _T], items: Generator[_T]) -> Generator[_T]:
    """What a function makes of each item; the items are closed with it."""
    with closing(items):
        yield from map(function, items)
