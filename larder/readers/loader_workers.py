"""Processes that make batches for the loaders of this process, ahead of training and in order.

All loaders of a process share its loader workers. Each worker makes every n-th batch of an
iteration in a slot of shared memory, and goes on while a slot is free. Training uses batches in
place, and this process needs no thread. A killed process is replaced; the new process makes the
unfinished batch again.
"""

from __future__ import annotations

import atexit
import os
import pickle
import random
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np

from larder.errors import ConfigError, Failure, FatalError, LarderError
from larder.forking import leave_to_parent, lock_of_process
from larder.jobs.processes import Process
from larder.readers.batch_decoding import Empty
from larder.readers.launcher import ranks_of_machine
from larder.readers.schedule import invalid
from larder.readers.slots import SharedMemory, SlotLayout, SlotWriter, read_value
from larder.store.interrupt import Interrupt

_SLOTS = 3
"""Slots of a process for an iteration: one is written, one waits, one is used."""

MOST_WORKERS = 1_024
_MOST_LOADERS = 16
_ENDED = 512

_HINT = "if memory is short, give the loader fewer workers; go on from the last state"


class Work(NamedTuple):
    """Pickled loader from which processes make batches; ``batches`` is the length of its epochs.

    A process keeps one loader of each ``owner``; the ``token`` identifies a loader that was sent.
    """

    owner: int
    token: str
    loader: bytes
    batches: int
    where: str


_SentLoader = tuple[bytes, list[str], dict[str, str]]
"""Pickled loader, with the path and the environment for loading it."""


class LoadedBatch(NamedTuple):
    """Batch, and the samples that were left out."""

    batch: Any
    skipped: Sequence[Failure]


# In a loader worker.

_loaders: dict[int, Any] = {}
_streams: dict[int, Generator[Callable[[Empty], LoadedBatch]]] = {}
_memory = cache(SharedMemory)


def begin(stream: int, owner: int, sent: _SentLoader | None, steps: range) -> None:
    """Begin to make these batches, counted from the first batch of the first epoch."""
    if sent is not None:
        loader, path, environment = sent
        sys.path[:] = path
        os.environ.update(environment)
        _loaders.pop(owner, None)  # no iteration may use it if the new loader cannot be loaded
        if len(_loaders) == _MOST_LOADERS:
            _loaders.clear()
        try:
            _loaders[owner] = pickle.loads(loader)  # noqa: S301 - from the parent process
        except LarderError:
            raise
        except Exception as error:
            message = f"a process cannot load the loader: {type(error).__name__}: {error}"
            hint = "give workers=0, or functions of a module that can be imported"
            raise invalid(message, "workers", hint) from error
        # A module may have seeded the generators on import, so all processes would draw the same.
        random.seed()
        np.random.seed()
        if torch := sys.modules.get("torch"):
            torch.seed()
    _streams[stream] = _loaders[owner].make(steps)


def make(stream: int, descriptor: int, number: int) -> SlotLayout | None:
    """Write the next batch of an iteration to a slot; None if it failed or has ended."""
    memory = _memory(descriptor)
    iteration_end = _End(memory, stream)
    if stream not in _streams or iteration_end.stopped:
        return None
    try:
        with iteration_end.active():
            made, writer = next(_streams[stream]), SlotWriter(memory, number)
            return writer.write(made(writer.empty))
    except BaseException:
        end(stream)
        raise


def end(stream: int) -> None:
    """Stop reading ahead for an iteration."""
    if stream in _streams:
        _streams.pop(stream).close()


class _End(Interrupt):
    """The end of an iteration: the parent stops it, also in the middle of a batch."""

    def __init__(self, memory: SharedMemory, stream: int) -> None:
        super().__init__()
        self._stream = stream
        self._ended = memory.slot(0, 1)[: _ENDED * 8].view(np.int64)

    @property
    def stopped(self) -> bool:
        return bool(self._ended[self._stream % _ENDED] == self._stream)

    def stop(self) -> None:
        self._ended[self._stream % _ENDED] = self._stream


# In the process that trains.


class _WorkerProcess(Process):
    """Process of a loader worker.

    ``calls`` are the unanswered calls of all iterations, in order; ``sent`` are the tokens of the
    loaders that the process has, by owner.
    """

    def __init__(self, together: int, memory: SharedMemory) -> None:
        super().__init__(together, [memory.descriptor])
        self.calls: deque[tuple[_Lane, bool]] = deque()
        self.sent: dict[int, str] = {}


class _Worker:
    """A loader worker: slots and iterations of its process, and of processes that replace it.

    State of a single process is in `_WorkerProcess`, so an interrupt leaves all of this state or
    nothing.
    """

    def __init__(self, number: int, together: int) -> None:
        self.memory = SharedMemory()
        self.free: list[int] = []
        self._number = number
        self._together = together
        self._slots = 0
        self._lock = lock_of_process()
        self._lanes: list[_Lane] = []
        self._closing: deque[_Lane] = deque()
        self._process: _WorkerProcess | None = None
        self._is_over = False

    @property
    def load(self) -> int:
        process = self._process
        return len(process.calls) if process else 0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Allow one thread at a time; an interrupt ends the process.

        After an interrupt, half of a message may have been sent or received. The next process
        begins anew.
        """
        with self._lock:
            try:
                self._tidy()
                yield
            except BaseException:
                self._stop()
                raise

    def slot(self) -> int:
        """Return a slot that no iteration has; never slot 0, which lists the ended iterations."""
        if not self.free:
            self._slots += 1
            self.free.append(self._slots)
        return self.free.pop()

    def open(self, lane: _Lane) -> None:
        while (process := self._process) and process.calls:
            if process.calls[0][0] in self._lanes:
                break
            self.receive()  # answers of ended iterations free their slots
        self._lanes.append(lane)
        if self._process is not None:
            self._begin(self._process, lane)

    def make(self, lane: _Lane, slot: int) -> None:
        """Have the process make a batch; the iteration already lists the slot as waiting."""
        if self._process is None:
            self._running()
        else:
            self._make(self._process, lane, slot)

    def receive(self) -> None:
        """Wait for the next answer, and hand it to its iteration."""
        process = self._running()
        lane, is_batch = process.calls[0]
        try:
            answer = process.result()
        except BaseException as error:
            if process.answered:
                answer = error.with_traceback(None)  # which refers to this frame
            elif isinstance(error, FatalError):
                self._stop()
                self._count_loss(lane, error)
                return
            else:
                raise
        process.calls.popleft()
        if is_batch or answer is not None:
            lane.answer(answer, is_batch)
        if not is_batch and answer is not None:
            process.sent.pop(lane.work.owner, None)

    def close(self, lane: _Lane) -> None:
        """End an iteration.

        The garbage collector may call this in a thread that holds the lock. The next thread with
        the lock does the rest.
        """
        if self._is_over:
            return
        _End(self.memory, lane.stream).stop()
        self._closing.append(lane)
        if not self._lock.locked():
            with self.locked():
                pass

    def stop(self) -> None:
        self._is_over = True
        self._stop()

    def leave_to_parent(self) -> None:
        self._is_over = True
        if self._process is not None:
            self._process.leave_to_parent()

    def _tidy(self) -> None:
        while self._closing:
            lane = self._closing.popleft()
            if lane in self._lanes:
                self._lanes.remove(lane)
                self.free += lane.left()
                if self._process is None:
                    self.free += lane.waiting
                else:
                    self._process.submit(end, lane.stream)
                    self._process.calls.append((lane, False))

    def _running(self) -> _WorkerProcess:
        """Return the process, started if needed; a new process gets all unanswered calls."""
        if self._process is None:
            process = self._process = _WorkerProcess(self._together, self.memory)
            for lane in self._lanes:
                if not lane.has_failed:
                    self._begin(process, lane)
                    for slot in lane.waiting:
                        self._make(process, lane, slot)
        return self._process

    def _begin(self, process: _WorkerProcess, lane: _Lane) -> None:
        owner, token, pickled, *_ = lane.work
        if len(process.sent) == _MOST_LOADERS and owner not in process.sent:
            process.sent.clear()
        is_sent = process.sent.get(owner) == token
        sent = None if is_sent else (pickled, list(sys.path), dict(os.environ))
        process.sent[owner] = token
        process.submit(begin, lane.stream, owner, sent, lane.steps[lane.answered :])
        process.calls.append((lane, False))

    def _make(self, process: _WorkerProcess, lane: _Lane, slot: int) -> None:
        process.submit(make, lane.stream, self.memory.descriptor, slot)
        process.calls.append((lane, True))

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            for lane in {lane for lane, _ in process.calls if lane not in self._lanes}:
                self.free += lane.waiting
            process.process.kill()
            process.close()

    def _count_loss(self, lane: _Lane, error: FatalError) -> None:
        """Fail an iteration if two processes ended at the same batch.

        The next process makes only the batches of other iterations.
        """
        if lane.lost_at != lane.answered:
            lane.lost_at = lane.answered
            return
        batch = lane.steps[min(lane.answered, len(lane.steps) - 1)] % lane.work.batches
        message = f"worker {self._number} ended twice at batch {batch}: {error.message}"
        lane.fail(FatalError("run.failed", message, where=lane.work.where, hint=_HINT))


class _Lane:
    """Batches of an iteration that one process makes.

    Attributes:
        until: Step at which the epoch ends. Of the next epoch, one batch at a time is made ahead.
        lost_at: Number of batches answered when a process ended at the next batch.
        has_failed: Whether later processes leave this iteration out.
        waiting: Slots of batches that were asked for and not yet answered.
    """

    def __init__(self, worker: _Worker, stream: int, work: Work, steps: range, until: int) -> None:
        self.stream = stream
        self.work = work
        self.steps = steps
        self.until = until
        self.answered = 0
        self.lost_at: int | None = None
        self.has_failed = False
        self.waiting: deque[int] = deque()
        self._worker = worker
        self._free: list[int] = []
        self._ready: deque[tuple[int, Any]] = deque()
        self._is_closed = False

    def open(self) -> None:
        with self._worker.locked():
            self._worker.open(self)
            self._free += [self._worker.slot() for _ in range(min(_SLOTS, len(self.steps)))]
            self._ask()

    def answer(self, answer: Any, is_batch: bool) -> None:
        slot = 0
        if is_batch:
            self.answered += 1
            slot = self.waiting.popleft()
        if self._is_closed and slot:
            self._worker.free.append(slot)
        else:
            self._ready.append((slot, answer))

    def fail(self, error: FatalError) -> None:
        """End with an error in place of further batches."""
        self.has_failed = True
        self._free += self.waiting
        self.waiting.clear()
        self.answer(error, False)

    def take(self) -> Any:
        """Return the next batch. Its slot is free again when no reference to the batch is left."""
        with self._worker.locked():
            self._ask()
            while not self._ready:
                self._worker.receive()
            slot, layout = self._ready.popleft()
            self._ask()  # maybe for the first batch of the next epoch
        if not isinstance(layout, SlotLayout):
            if slot:
                self._release(slot)
            try:
                raise layout
            finally:
                del layout  # which refers to this frame
        memory = self._worker.memory
        if self._left and not (self._free or self._ready or self.waiting):
            # Training keeps all batches, so no slot would become free.
            value = read_value(memory.slot(slot, layout.bytes), layout, np.copy)
            self._release(slot)
            return value
        return read_value(memory.lent(slot, layout.bytes, self._release), layout)

    def left(self) -> list[int]:
        """Return the slots that are unused once the iteration is closed."""
        return [*self._free, *(slot for slot, _ in self._ready if slot)]

    def close(self) -> None:
        self._is_closed = True
        self._worker.close(self)

    @property
    def _left(self) -> int:
        """Number of batches that were not asked for yet."""
        return 0 if self.has_failed else len(self.steps) - self.answered - len(self.waiting)

    def _ask(self) -> None:
        while self._free and self._left:
            step = self.steps[self.answered + len(self.waiting)]
            if step >= self.until and (self.waiting or self._ready):
                break
            slot = self._free.pop()
            self.waiting.append(slot)
            self._worker.make(self, slot)

    def _release(self, slot: int) -> None:
        (self._worker.free if self._is_closed else self._free).append(slot)


class BatchStream:
    """Batches of iterations, in order; must be closed."""

    def __init__(self, lanes: list[_Lane]) -> None:
        self._lanes = list(lanes)
        self._turns = cycle(lanes)
        self._process = os.getpid()
        try:
            for lane in lanes:
                lane.open()
        except BaseException:
            self.close()
            raise

    def take(self) -> Any:
        """Wait for the next batch. Errors of the user's functions may include StopIteration."""
        if self.is_of_parent:
            raise begun_in_parent()
        return next(self._turns).take()

    @property
    def is_of_parent(self) -> bool:
        return self._process != os.getpid()

    def go_on(self, until: int) -> None:
        """Make batches of the epoch that ends at ``until``."""
        for lane in self._lanes:
            lane.until = until

    def close(self) -> None:
        while self._lanes:
            self._lanes.pop().close()

    def __del__(self) -> None:
        self.close()  # an interrupt may have left lanes open


class LoaderWorkers:
    """Worker processes, started when an iteration needs them and ended with the program."""

    def __init__(self) -> None:
        self._lock = lock_of_process()
        self._workers: list[_Worker] = []
        self._streams = 0

    def has(self, count: int) -> bool:
        return len(self._workers) >= count

    def stream(self, work: Work, steps: range, count: int, until: int) -> BatchStream:
        """Have ``count`` processes make these batches, in an epoch that ends at ``until``."""
        with self._lock:
            while not self.has(count):
                self._workers.append(_Worker(len(self._workers), count * ranks_of_machine()))
            self._streams += 1
            stream = self._streams
        workers = sorted(self._workers[:count], key=lambda each: each.load)
        workers = workers[: len(steps)]
        parts = [steps[place :: len(workers)] for place in range(len(workers))]
        pairs = zip(workers, parts, strict=True)
        return BatchStream([_Lane(one, stream, work, part, until) for one, part in pairs])

    def stop(self) -> None:
        for worker in self._workers:
            worker.stop()

    def leave_to_parent(self) -> None:
        for worker in self._workers:
            worker.leave_to_parent()


_shared_workers = LoaderWorkers()


def shared_workers() -> LoaderWorkers:
    return _shared_workers


def _forked() -> None:
    global _shared_workers
    leave_to_parent(_shared_workers)
    _shared_workers.leave_to_parent()
    _shared_workers = LoaderWorkers()


os.register_at_fork(after_in_child=_forked)
atexit.register(lambda: _shared_workers.stop())


def begun_in_parent() -> ConfigError:
    message = "the iteration began in the parent process, which reads for it"
    return invalid(message, "iteration", "iterate anew in this process")
