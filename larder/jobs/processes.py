"""Calls of functions in other processes, for work that holds the interpreter lock.

The lock allows one core to deal with samples, or to write a JPEG. Reading, hashing and writing
large samples does not hold the lock. So threads do as well there, without the memory of a process
and the second that it takes to start.

Another process is a program of its own, this module. So a user's script needs no guard, and an
interrupt of the terminal does not reach the process. The process ends as soon as its parent is
gone, because its stdin is closed then. Both ends of its pipes are Larder, so messages are pickled.
The process tells its progress every tenth of a second, and stops between two objects if a message
asks for it.
docs/dependencies.md says why this is not loky.

The processes of a `ProcessPool` do pieces of a batch for its threads, such as transforming an
image.
"""

from __future__ import annotations

import gc
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from queue import LifoQueue
from typing import IO, Any, NamedTuple, cast

from larder.errors import FatalError
from larder.machine import raise_open_files, share_machine, small_memory_environment
from larder.progress import CancellableProgress, NullProgress, Progress
from larder.store.base import Closing
from larder.store.interrupt import stopping_waits

_PACKAGES = str(Path(__file__).parents[2])
_PROGRAM = (
    "import sys; together, packages, *paths = sys.argv[1:];"
    " sys.path = [path for path in sys.path if path];"
    " sys.path.insert(0, packages); import larder; del sys.path[0]; sys.path += paths;"
    f" from {__name__} import serve; serve(int(together))"
)
"""Imports the same Larder as its parent, and other modules from the usual places. The parent's
own folders come last: a ``queue.py`` there must not hide the standard library's.
"""

_LENGTH_BYTES = 8
_REPORT_SECONDS = 0.1
_END_SECONDS = 10.0
_STOP = "stop"
_NO_PROCESS = (
    "use fewer workers, or raise the limit of processes (ulimit -u, or pids of the container), of"
    " open files or of memory"
)

_lock = threading.Lock()
_shared: dict[int, tuple[ProcessPool, int]] = {}


class _FunctionCall(NamedTuple):
    """A function and its arguments; as part of a ``stage``, it also takes ``progress``."""

    function: str
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    stage: str


class _Advance(NamedTuple):
    stage: str
    objects: int
    bytes: int


class _CallResult(NamedTuple):
    result: Any


class _Failed(NamedTuple):
    """An error; ``pickled`` is empty if unpickling would give another error, or none."""

    pickled: bytes
    text: str
    traceback: str

    @staticmethod
    def of(error: BaseException) -> _Failed:
        text = "".join(traceback.format_exception_only(error)).strip()
        return _Failed(_pickled(error), text, "".join(traceback.format_exception(error)))

    def error(self) -> BaseException:
        try:
            error = _unpickled(self.pickled)
        except Exception:  # noqa: BLE001 - such as a class that this process cannot import
            error = FatalError("run.failed", self.text)
        error.__cause__ = _ProcessError(self.traceback)
        return error


class _ProcessError(Exception):
    """The traceback of another process, shown as the cause of an error."""

    def __str__(self) -> str:
        return f"in a process that Larder started\n\n{self.args[0]}"


def _pickled(error: BaseException) -> bytes:
    """Pickle an error, or its parts; empty if neither gives the same error again.

    `BaseException` keeps the arguments of its own call, which a class of the user may not take.
    """
    for form in (error, (type(error), error.args, error.__dict__)):
        with suppress(Exception):
            again = _unpickled(pickled := pickle.dumps(form))
            if type(again) is type(error) and str(again) == str(error):
                return pickled
    return b""


def _unpickled(pickled: bytes) -> BaseException:
    error: Any = pickle.loads(pickled)  # noqa: S301 - of a process of the same run, as in `_read`
    if isinstance(error, tuple):
        kind, arguments, attributes = error
        error = kind.__new__(kind)
        error.args, error.__dict__ = arguments, attributes
    return cast(BaseException, error)


class Process:
    """A process that does one call after the other.

    Args:
        together: Number of started processes, including the new process, that share the machine.
        descriptors: Open files of this process that the new process has under the same numbers.
    """

    def __init__(self, together: int = 1, descriptors: Collection[int] = ()) -> None:
        paths = [path for path in sys.path if isinstance(path, str)]
        try:
            self.process = subprocess.Popen(  # noqa: S603 - a module of this package
                [sys.executable, "-c", _PROGRAM, str(together), _PACKAGES, *paths],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=small_memory_environment() | os.environ,
                start_new_session=True,  # out of reach of the terminal's Ctrl-C
                pass_fds=tuple(descriptors),
            )
        except OSError as error:
            message = f"no process can be started: {error.strerror}"
            where = sys.executable
            raise FatalError("run.limit", message, where=where, hint=_NO_PROCESS) from error
        self._stdin = cast(IO[bytes], self.process.stdin)
        self._stdout = cast(IO[bytes], self.process.stdout)
        self.answered = False
        """Whether it has said how its last call ended."""

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        progress: Progress | None = None,
        stage: str = "",
        **named: Any,
    ) -> Any:
        """Call a function of a module; as part of a stage, its progress is passed on until it ends.

        ``run.failed``: the process was killed; the progress of its stage is taken back.
        """
        self.submit(function, *arguments, stage=stage, **named)
        return self.result(progress, stage)

    def submit(
        self, function: Callable[..., Any], *arguments: Any, stage: str = "", **named: Any
    ) -> None:
        """Queue a call after earlier calls; `result` waits for each call in turn."""
        name = f"{function.__module__}:{function.__qualname__}"
        self._send(_FunctionCall(name, arguments, named, stage))

    def result(self, progress: Progress | None = None, stage: str = "") -> Any:
        """Return the result of the oldest call not yet waited for, once it ends; see `call`."""
        self.answered = False
        objects = size_bytes = 0
        while True:
            message = _read(self._stdout)
            if message is None:
                if progress is not None:
                    progress.advance(stage, objects=-objects, bytes=-size_bytes)
                text = f"a process that Larder started ended with status {self.process.wait()}"
                raise FatalError("run.failed", text, hint="run again to continue")
            self.answered = isinstance(message, _CallResult | _Failed)
            if isinstance(message, _CallResult):
                return message.result
            if isinstance(message, _Failed):
                raise message.error()
            assert progress is not None, "only who has a progress tells of it"
            if message.stage == stage:
                objects, size_bytes = objects + message.objects, size_bytes + message.bytes
            try:
                progress.advance(message.stage, objects=message.objects, bytes=message.bytes)
            except BaseException:
                self._stop()
                raise

    def leave(self) -> None:
        """Let the process end by itself, as soon as it waits for a call."""
        for pipe in (self._stdin, self._stdout):
            with suppress(OSError):  # unsent bytes are not needed
                pipe.close()

    def close(self) -> None:
        """End the process.

        An idle process exits by itself and removes its temporary files; a busy process is killed.
        """
        self.leave()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_END_SECONDS if self.answered else 0)
        self.process.kill()
        self.process.wait()

    def leave_to_parent(self) -> None:
        """Replace the pipes in a forked child; otherwise the process would outlive its parent."""
        with open(os.devnull, "r+b") as nothing:
            for pipe in (self._stdin, self._stdout):
                os.dup2(nothing.fileno(), pipe.fileno(), inheritable=False)

    def _send(self, message: Any) -> None:
        with suppress(BrokenPipeError):  # `_read` finds out
            _write(self._stdin, message)

    def _stop(self) -> None:
        """Ask the process to stop its call, and wait until the call has ended."""
        self._send(_STOP)
        while not isinstance(message := _read(self._stdout), _CallResult | _Failed | None):
            pass
        self.answered = message is not None


def _write(pipe: IO[bytes], message: Any) -> None:
    """Write a whole message, or nothing if the message cannot be pickled."""
    data = pickle.dumps(message)
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "little") + data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> Any:
    """Read the next message; None if the other end is closed."""
    head = pipe.read(_LENGTH_BYTES)
    size_bytes = int.from_bytes(head, "little")
    data = pipe.read(size_bytes)
    if len(head) < _LENGTH_BYTES or len(data) < size_bytes:
        return None
    # The other process belongs to the same run.
    return pickle.loads(data)  # noqa: S301


class _Reports(NullProgress):
    """Sums of progress, which a thread reports; the other process knows all batches."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._lock = threading.Lock()
        self._sums: dict[str, tuple[int, int]] = {}

    def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
        with self._lock:
            before = self._sums.get(stage, (0, 0))
            self._sums[stage] = before[0] + objects, before[1] + bytes

    def taken(self) -> Iterator[_Advance]:
        """Yield the progress since the last call, even if there was none.

        Each message makes the other process check whether to stop this process.
        """
        with self._lock:
            sums, self._sums = self._sums, {}
        for stage, (objects, size_bytes) in (sums or {self._stage: (0, 0)}).items():
            yield _Advance(stage, objects, size_bytes)


def serve(together: int) -> None:
    """Do the calls that come on stdin, until it is closed."""
    gc.disable()  # modules stay: a search while the first call imports them would find nothing
    share_machine(together)
    raise_open_files()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may be written where the messages go
    calls: queue.SimpleQueue[_FunctionCall | None] = queue.SimpleQueue()
    stop, busy = threading.Event(), threading.Event()
    # Not sys.stdin, which Python closes at its end, while a thread still waits for more of it.
    receive = threading.Thread(
        target=_receive, args=(os.fdopen(os.dup(0), "rb"), calls, stop, busy), daemon=True
    )
    receive.start()
    while (call := calls.get()) is not None:
        busy.set()
        stop.clear()
        message = _answer(call, results, stop)
        busy.clear()  # before the parent reads the answer and may close this process
        try:
            _reply(results, message)
        except Exception as error:  # noqa: BLE001 - it cannot be pickled
            text = f"the result of a call cannot be passed on: {type(error).__name__}: {error}"
            _reply(results, _Failed.of(FatalError("run.internal", text)))


def _reply(pipe: IO[bytes], message: Any) -> None:
    try:
        _write(pipe, message)
    except BrokenPipeError:
        os._exit(1)  # no process waits for the answer: end as if killed


def _receive(
    pipe: IO[bytes],
    calls: queue.SimpleQueue[_FunctionCall | None],
    stop: threading.Event,
    busy: threading.Event,
) -> None:
    try:
        while (message := _read(pipe)) is not None:
            if message == _STOP:
                stop.set()
            else:
                calls.put(message)
    except Exception:  # noqa: BLE001 - such as a MemoryError
        try:
            traceback.print_exc()
        finally:
            os._exit(1)  # or the other process would wait for the answer for ever
    if busy.is_set() or not calls.empty():
        os._exit(1)  # no process waits for the answer: end as if killed
    calls.put(None)


def _answer(
    call: _FunctionCall, results: IO[bytes], stop: threading.Event
) -> _CallResult | _Failed:
    try:
        module, _, name = call.function.partition(":")
        function = getattr(import_module(module), name)
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        if not call.stage:
            return _CallResult(function(*call.arguments, **call.named))
        with _reporting(results, call.stage) as reports:
            progress = CancellableProgress(reports, stop)
            with stopping_waits(progress):
                return _CallResult(function(*call.arguments, progress=progress, **call.named))
    except BaseException as error:  # noqa: BLE001 - raised again in the other process
        return _Failed.of(error)


@contextmanager
def _reporting(results: IO[bytes], stage: str) -> Iterator[_Reports]:
    """Report the progress of a ``with`` block now and then, and at its end."""
    reports, over = _Reports(stage), threading.Event()

    def report() -> None:
        while True:
            last = over.wait(_REPORT_SECONDS)
            for message in reports.taken():
                _reply(results, message)
            if last:
                return

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield reports
    finally:
        over.set()
        thread.join()


class ProcessPool(Closing):
    """Up to ``count`` processes, started when first needed, and used again. Thread-safe."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._idle: LifoQueue[Process | None] = LifoQueue()
        for _ in range(count):
            self._idle.put(None)

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        unit: str,
        again: bool = True,
        **options: Any,
    ) -> Any:
        """Wait for an idle process, and call a function there; see `Process.call`.

        If the process is killed, another process repeats the call once. If that process is killed,
        too, ``run.failed`` has ``unit`` as its place.
        """
        process = self._idle.get()
        try:
            process = process or Process(self.count)
            return process.call(function, *arguments, **options)
        except FatalError as error:
            if process is None or process.answered or error.code != "run.failed":
                raise
            if not again:
                hint = "if memory is short, lower runner.workers or copy.memory_bytes; run again"
                raise FatalError("run.failed", error.message, where=unit, hint=hint) from error
        finally:
            if process is not None and not process.answered:
                process.close()
                process = None
            self._idle.put(process)
        return self.call(function, *arguments, unit=unit, again=False, **options)

    def close(self) -> None:
        """End the processes; no thread may be waiting for a process."""
        processes = [self._idle.get() for _ in range(self.count)]
        for process in filter(None, processes):
            process.leave()
        for process in filter(None, processes):
            process.close()
        for _ in processes:
            self._idle.put(None)


@contextmanager
def shared_pool(count: int) -> Iterator[ProcessPool | None]:
    """Yield the pool of this process, started by its first user and ended by its last.

    None if ``count`` is 1, as the calling threads do as well.
    """
    if count == 1:
        yield None
        return
    with _lock:
        pool, users = _shared.get(count) or (ProcessPool(count), 0)
        _shared[count] = pool, users + 1
    try:
        yield pool
    finally:
        with _lock:
            pool, users = _shared.pop(count)
            if users > 1:
                _shared[count] = pool, users - 1
        if users == 1:
            pool.close()
