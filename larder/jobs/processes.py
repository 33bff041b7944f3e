"""Runs steps of batches of many small samples in several processes, of which this is one.

The interpreter lock allows one core to deal with samples. Reading, hashing and writing large ones
does not hold it, so threads do as well there, without the half second that a process takes to
start, and without its 130 MB. For these two, one batch at a time stays in this process anyway.

Another process is a program of its own (`larder.jobs.batch_process`): a user's script needs no
guard, and an interrupt of the terminal does not reach it. It waits for another batch for a while,
and ends as soon as the process that started it is gone. Both ends of the pipe are Larder, so what
goes through it is pickled.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

from larder.config.models import Location
from larder.errors import FatalError
from larder.jobs.programs import start_program
from larder.progress import Progress

WORTH_ROWS = 40_000
"""Smaller batches are done before a process has started: a sample takes some 20 microseconds."""

_SMALL_BYTES = 32_000
"""Mean size of samples up to which dealing with them takes longer than moving their bytes."""

_SCHEMES = ("", "file", "gs", "s3")
_LENGTH_BYTES = 8

STOP = "stop"
"""The message that asks a process to stop between two objects."""


class Work(NamedTuple):
    """What a process is to do: call ``MODULE:FUNCTION`` for a batch."""

    step: str
    job: Any
    batch: Any
    concurrent_batches: int


class Advance(NamedTuple):
    """Progress of a stage; without any, the process only says that it is alive."""

    stage: str
    objects: int
    bytes: int


class Done(NamedTuple):
    result: Any


class Failed(NamedTuple):
    error: BaseException


def suits(places: Iterable[Location], rows: int, size_bytes: int, concurrent_batches: int) -> bool:
    """Whether a batch that writes so much is better done in a process of its own."""
    if concurrent_batches == 1 or rows < WORTH_ROWS or size_bytes > _SMALL_BYTES * rows:
        return False
    # Prefect's blocks and stores in memory exist only in this process.
    return all(
        place.access.block is None and urlsplit(place.url).scheme in _SCHEMES for place in places
    )


def work(
    step: Callable[..., Any], job: Any, batch: Any, *, progress: Progress, concurrent_batches: int
) -> Any:
    """The result of a step for a batch, from a process of its own if this one has a batch already.

    ``step`` is a function of a module. An error that ``progress`` raises stops the process between
    two objects. ``run.failed``: the process was killed.
    """
    if _here.acquire(blocking=False):
        try:
            return step(job, batch, progress=progress, concurrent_batches=concurrent_batches)
        finally:
            _here.release()
    message = Work(f"{step.__module__}:{step.__qualname__}", job, batch, concurrent_batches)
    process = _started(message)
    try:
        return process.result(progress)
    finally:
        if process.answered:
            with _lock:
                _idle.append(process)
        else:
            process.close()


_here = threading.Lock()
"""Held by the batch that is done in this process."""

_idle: list[_Process] = []
_lock = threading.Lock()


def close_idle() -> None:
    """End the processes that wait for a batch."""
    with _lock:
        found = list(_idle)
        _idle.clear()
    for process in found:
        process.close()


def _started(message: Work) -> _Process:
    """A process that has begun, one that waits if possible: it may just have ended by itself."""
    with _lock:
        process = _idle.pop() if _idle else None
    if process is not None:
        process.send(message)
        if process.begins():
            return process
        process.close()
    process = _Process()
    process.send(message)
    return process


class _Process:
    """A process that does one batch. Ended at the end of a ``with`` block."""

    def __init__(self) -> None:
        self._process = start_program("larder.jobs.batch_process")
        assert self._process.stdin is not None, "it has pipes"
        assert self._process.stdout is not None, "it has pipes"
        self._stdin: IO[bytes] = self._process.stdin
        self._stdout: IO[bytes] = self._process.stdout

        self.answered = False
        """Whether it has said how its last batch ended."""
        self._first: Any = None

    def close(self) -> None:
        with suppress(OSError):
            self._stdin.close()
        self._process.kill()
        self._stdout.close()
        self._process.wait()

    def send(self, message: Any) -> None:
        self.answered = False
        with suppress(BrokenPipeError):  # `result` finds out
            write_message(self._stdin, message)

    def begins(self) -> bool:
        """Whether it says anything."""
        self._first = read_message(self._stdout)
        return self._first is not None

    def result(self, progress: Progress) -> Any:
        """Pass its progress on, until it has done its batch; ``run.failed``: it was killed."""
        while True:
            message, self._first = self._first or read_message(self._stdout), None
            if isinstance(message, Done):
                self.answered = True
                return message.result
            if isinstance(message, Failed):
                self.answered = True
                raise message.error
            if message is None:
                text = f"a process that packs shards ended with status {self._process.wait()}"
                raise FatalError("run.failed", text, hint="run again to continue")
            try:
                progress.advance(message.stage, objects=message.objects, bytes=message.bytes)
            except BaseException:
                self._stop()
                raise

    def _stop(self) -> None:
        """Ask it to stop, and wait until it has."""
        self.send(STOP)
        while not isinstance(message := read_message(self._stdout), Done | Failed | None):
            pass
        self.answered = message is not None


def write_message(pipe: IO[bytes], message: Any) -> None:
    """Write one message, whole or not at all if it cannot be pickled."""
    data = pickle.dumps(message)
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "little") + data)
    pipe.flush()


def read_message(pipe: IO[bytes]) -> Any:
    """The next message; None if the other end is closed."""
    head = pipe.read(_LENGTH_BYTES)
    if len(head) < _LENGTH_BYTES:
        return None
    size_bytes = int.from_bytes(head, "little")
    data = pipe.read(size_bytes)
    # Between two processes of one run, of which one has started the other.
    return pickle.loads(data) if len(data) == size_bytes else None  # noqa: S301


class Outbox:
    """Writes messages from any thread."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def put(self, message: Any) -> None:
        with self._lock:
            write_message(self._pipe, message)
