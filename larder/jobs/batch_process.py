"""The program that does one batch for another process; see `larder.jobs.processes`.

It reads the work from stdin and writes messages to stdout: its progress every tenth of a second, by
which the other process also notices that it is alive, and then the result. A message on stdin asks
it to stop between two objects; if stdin is closed, nobody waits for it any more, and it ends at
once, as if it were killed. It also ends if no other batch comes within ten seconds.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
from importlib import import_module
from typing import IO, Any

from larder.errors import FatalError
from larder.jobs.processes import STOP, Advance, Done, Failed, Outbox, Work, read_message
from larder.progress import CancellableProgress, Progress

_TELL_SECONDS = 0.1
_IDLE_SECONDS = 10.0
_STAGE = "shard"


class _Told(Progress):
    """Adds progress up, for a thread that tells it."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._lock = threading.Lock()
        self._sums: dict[str, tuple[int, int]] = {}

    def start(self, stage: str, *, objects: int | None = None, bytes: int | None = None) -> None:
        """Ignored: the other process knows all batches."""

    def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
        with self._lock:
            before = self._sums.get(stage, (0, 0))
            self._sums[stage] = before[0] + objects, before[1] + bytes

    def finish(self, stage: str) -> None:
        """Ignored, as `start`."""

    def restart(self, reason: str) -> None:
        """Ignored: no step of a batch does that."""

    def tell(self) -> None:
        """Send what was done since the last time, if only that the process is alive."""
        with self._lock:
            sums, self._sums = self._sums, {}
        for stage, (objects, size_bytes) in (sums or {_STAGE: (0, 0)}).items():
            self._outbox.put(Advance(stage, objects, size_bytes))


def main() -> None:
    """Do the batches that stdin names, until none comes for a while."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    outbox = Outbox(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # nothing else may be written where the messages go
    # Not sys.stdin, which Python closes at its end, while a thread still waits for more of it.
    inbox = _Inbox(os.fdopen(os.dup(0), "rb"))
    while (found := inbox.next()) is not None:
        _answer(found, outbox, inbox.stop)


class _Inbox:
    """Reads messages in a thread; if the pipe is closed, the process ends."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.stop = threading.Event()
        """Set if the batch in progress is to stop."""
        self._pipe = pipe
        self._found: queue.SimpleQueue[Work] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def next(self) -> Work | None:
        """The next batch; None if there is none for a while."""
        try:
            found = self._found.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            return None
        self.stop.clear()
        return found

    def _read(self) -> None:
        while (message := read_message(self._pipe)) is not None:
            if message == STOP:
                self.stop.set()
            else:
                self._found.put(message)
        os._exit(1)


def _answer(found: Work, outbox: Outbox, stop: threading.Event) -> None:
    over = threading.Event()
    told = _Told(outbox)
    told.tell()
    teller = threading.Thread(target=_tell, args=(told, over), daemon=True)
    teller.start()
    message: Any
    try:
        message = Done(_do(found, CancellableProgress(told, stop)))
    except BaseException as error:  # noqa: BLE001 - raised again in the other process
        message = Failed(error)
    over.set()
    teller.join()
    told.tell()
    try:
        outbox.put(message)
    except Exception as error:  # noqa: BLE001 - it cannot be pickled
        text = f"the result of a batch cannot be passed on: {type(error).__name__}: {error}"
        outbox.put(Failed(FatalError("run.internal", text)))


def _do(found: Work, progress: Progress) -> Any:
    module, _, name = found.step.partition(":")
    step = getattr(import_module(module), name)
    return step(
        found.job, found.batch, progress=progress, concurrent_batches=found.concurrent_batches
    )


def _tell(told: _Told, over: threading.Event) -> None:
    while not over.wait(_TELL_SECONDS):
        told.tell()


if __name__ == "__main__":
    main()
