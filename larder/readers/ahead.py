"""Items that threads make ahead of their use; an interrupt may stop the caller at any time."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Generator
from concurrent.futures import Executor
from contextlib import closing
from functools import partial
from itertools import islice
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from larder.readers.loader_workers import begun_in_parent
from larder.store.interrupt import (
    Answers,
    Interrupt,
    interrupted_by,
    put_answer,
    result_of,
    stopped_with_caller,
)

_T = TypeVar("_T")

_END_SECONDS: Final = 10.0


def begun(threads: Executor | None, function: Callable[..., Any], *arguments: Any) -> Answers:
    """Begin a call in a thread, which a stop of this thread's work ends; or make the call here."""
    answers: Answers = SimpleQueue()
    call = [answers, partial(stopped_with_caller(function), *arguments)]
    if threads is None:
        put_answer(call)
    else:
        threads.submit(put_answer, call)
    return answers


def made_ahead(items: Generator[_T]) -> Generator[_T]:
    """Yield the items; a thread makes each item while the caller uses the item before.

    The thread ends with the iteration, which stops its requests, and closes the items. The garbage
    collector may end the iteration in one of the threads, which cannot wait for each other. At the
    end of the program, `_end` has ended the thread. A forked child has no thread.
    """
    process, owner = os.getpid(), threading.current_thread()
    interrupt = Interrupt(interrupted_by())
    asked: SimpleQueue[bool] = SimpleQueue()
    answers: Answers = SimpleQueue()
    given = (items, asked, answers, interrupt)
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
            interrupt.stop()
            asked.put(False)
            closer = threading.current_thread()
            if closer is owner or not closer.name.startswith("larder-"):
                thread.join()


def _make(
    items: Generator[Any], asked: SimpleQueue[bool], answers: Answers, interrupt: Interrupt
) -> None:
    with interrupt.active(), closing(items):
        while asked.get():
            put_answer([answers, partial(list, islice(items, 1))])
    del answers  # see `put_answer`


def _end(thread: threading.Thread, asked: SimpleQueue[bool], process: int) -> None:
    if process == os.getpid():
        asked.put(False)
        thread.join(_END_SECONDS)


def mapped(function: Callable[[_T], _T], items: Generator[_T]) -> Generator[_T]:
    """Yield the function's result for each item; close the items at the end."""
    with closing(items):
        yield from map(function, items)
