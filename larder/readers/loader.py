"""Batches of a split for one rank: read ahead, counted, and resumed."""

from __future__ import annotations

import logging
import os
import pickle
import sys
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from larder.errors import DamageError, Failure, Failures, FatalError, ObjectError
from larder.forking import cached_property
from larder.machine import usable_cores
from larder.readers.ahead import begun, made_ahead, mapped
from larder.readers.batch_decoding import (
    Batch,
    Decoding,
    Draws,
    Empty,
    chosen,
    rows_of,
)
from larder.readers.epoch_order import WINDOW_SAMPLES, Numbers, Order
from larder.readers.launcher import ranks_of_machine, refuse_ranks
from larder.readers.loader_workers import BatchStream, LoadedBatch, Work, shared_workers
from larder.readers.memory import ReusedMemory
from larder.readers.options import OnError
from larder.readers.schedule import LoaderSchedule, invalid, whole
from larder.readers.slots import IS_SUPPORTED
from larder.readers.sources import BatchSource, Read
from larder.store.interrupt import Answers, result_of
from larder.units import format_count

Collate = Callable[[list[dict[str, Any]]], Any]

_T = TypeVar("_T")

_logger = logging.getLogger("larder")

_IMPORTED = "define its functions in a module that can be imported, or give workers=0"

_WHOLE = "damage.digest"
"""A replaced shard or a damaged file of the index; no sample of it is skipped. A missing or refused
shard, an `ObjectError`, is not skipped either."""

_FEW_SAMPLES = 1_000
_FEW_BATCHES = 8
_LOOK = 2
"""Limits without ``workers``: an epoch of fewer than `_FEW_SAMPLES` samples uses no processes.

While processes start, threads make the first `_FEW_BATCHES` batches. An iteration that takes at
most `_LOOK` batches starts none. If functions of the user are called, processes make all batches
or none: what functions draw, keep or read may differ between threads and processes.
"""

_GROUP_BYTES = 48 << 20
"""Without a window, a larger group saves no requests, and takes memory that is costly to get."""


class Decode(Protocol):
    """Makes the batch for training from a batch as read.

    ``on_error`` is called with the row and the error of a bad sample; without it, the error is
    raised.
    """

    def __call__(
        self,
        batch: Any,
        on_error: Callable[[int, ObjectError], None] | None = None,
        draws: Draws | None = None,
        empty: Empty = np.empty,
    ) -> Batch: ...


class _Ahead(NamedTuple):
    """Batch that is read ahead, and the samples that were left out."""

    read: Read
    draws: Numbers
    skipped: Sequence[Failure] = ()


class LoaderArguments(NamedTuple):
    """Arguments of a loader, for a mix.

    Attributes:
        index: Keys, classes and shards of the samples; None for a cached function.
    """

    source: BatchSource
    schedule: LoaderSchedule
    index: Any
    decode: Decode | None
    memory_bytes: int
    on_error: OnError
    collate: Collate | None
    workers: int | None
    pin: Callable[[Any], Any] | None


class Loader:
    """The batches of a split that one rank trains with; ``larder.open(...).loader(...)`` makes it.

    An iteration is an epoch: ``len(loader)`` batches, or the rest after a state or `skip`. Once the
    last batch was delivered, the next iteration is the next epoch, with another order. An iteration
    that was left early begins again. While a batch is used, the next batches are read and decoded:
    by threads that end with the iteration, or by processes that end with the program. Iterate once
    at a time.

    Every rank has equally many batches with equally many samples, whatever was skipped. A loader
    can be pickled if its functions for decoding can.

    Attributes:
        epoch: Number of the epoch, from 0.
        batches: Number of delivered batches of this epoch.
        skipped: Samples that could not be read or decoded, with ``on_error="skip"``: their number
            in ``count``, and the first 1,000 by name in ``shown``. Counts in this process, since
            the loader was made; a sample counts when its batch is delivered.
    """

    def __init__(
        self,
        source: BatchSource,
        schedule: LoaderSchedule,
        index: Any,
        *,
        rank: int,
        world: int,
        decode: Decode | None,
        memory_bytes: int,
        on_error: OnError,
        collate: Collate | None = None,
        workers: int | None = 0,
        pin: Callable[[Any], Any] | None = None,
        is_ranked: bool = True,
    ) -> None:
        self.epoch = 0
        self.batches = 0
        self.skipped = Failures()
        self._start = 0, 0
        self._iteration = 0
        self._ordered: tuple[LoaderSchedule, dict[int, Order]] | None = None
        self.rank = rank
        self.world = world
        self.is_ranked = is_ranked
        self._source = source
        self._schedule = schedule
        self._index = index
        self._decode = decode
        self._memory_bytes = memory_bytes
        self._on_error = on_error
        self._collate = collate
        self._workers = workers
        self._pin = pin
        self._work: tuple[LoaderSchedule, bytes, Work | None] | None = None
        self._kept: tuple[str, int, BatchStream, weakref.finalize[[BatchStream], Any]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_work": None, "_ordered": None, "_pin": None, "_kept": None}

    def __repr__(self) -> str:
        """Show the version, the split, the rank and the number of batches."""
        batches = format_count(len(self), "batch")
        ranks = f"rank {self.rank} of {self.world}"
        return f"<larder.Loader {self._schedule.name}: {ranks}, {batches}>"

    @property
    def parts(self) -> LoaderArguments:
        """Arguments of this loader, for a mix."""
        names = (f"_{name}" for name in LoaderArguments._fields)
        return LoaderArguments(*(getattr(self, name) for name in names))

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return self._schedule.division(self.world).batches_of(self.rank)

    @property
    def batch_size(self) -> int:
        """The number of samples of a batch of all ranks together."""
        return self._schedule.batch_size

    @property
    def dropped(self) -> int:
        """The number of samples that every epoch leaves out, with ``Batches(even="drop")``."""
        return self._schedule.division(self.world).dropped

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches of an epoch.

        Raises:
            LarderError: A sample cannot be read or decoded. With ``on_error="skip"``: no sample of
                the rank's share of a batch can; a shard differs from the published one, or all of
                it is damaged (``damage.digest``); a shard is gone (``object.missing``) or refused
                (``object.unreadable``); or the store fails.
                ``run.incomplete``: there were fewer batches than ``len(loader)``.
        """
        iteration = self.begin()
        ahead = self.ahead(range(self.batches, len(self)))
        if self._pin is not None:
            ahead = made_ahead(mapped(self._pin, ahead))
        with closing(ahead) as batches:
            for number, batch in enumerate(batches, self.batches + 1):
                self.check(iteration)
                self.batches = number
                yield batch
        self.check(iteration)
        self.end()

    def begin(self) -> int:
        """Go to the start of an iteration; return the iteration's number, for `check`."""
        epoch, batches = self._after(0)
        first = self._start[1] if self._start[0] == epoch else 0
        return self.go_to(epoch, min(first, batches))

    def go_to(self, epoch: int, batches: int) -> int:
        """Go on, or begin again, after this many batches of an epoch; other iterations end."""
        if not self.is_ranked:
            refuse_ranks(self._schedule.split)
        self._start = self.epoch, self.batches = epoch, batches
        self._iteration += 1
        return self._iteration

    def end(self) -> None:
        """Go to the next epoch, after the last batch of this epoch was delivered."""
        if self.batches < len(self):
            message = f"the epoch ended after {self.batches:,} of {len(self):,} batches"
            hint = "see the output of the workers for what they could not send"
            raise FatalError("run.incomplete", message, where=self._schedule.split, hint=hint)
        self.epoch, self.batches = self.epoch + 1, 0

    def check(self, iteration: int) -> None:
        """Refuse to go on with an iteration after the loader moved elsewhere."""
        if iteration != self._iteration:
            message = "the loader was moved, or iterated again, since this iteration began"
            raise invalid(message, self._schedule.split, "iterate once at a time")

    def read(self, numbers: range, epoch: int | None = None) -> Generator[Batch]:
        """Yield the batches of this or another epoch with these numbers, not counted as delivered.

        `Numbers` are of samples, these of batches in the epoch. The step of these numbers is the
        number of processes that divide the rank's batches, and with them its memory.
        """
        epoch = self.epoch if epoch is None else epoch
        groups = self._read(epoch, numbers)
        groups = groups if self._source.is_decoded else made_ahead(groups)
        with closing(made_ahead(self._decoding(groups, epoch))) as batches:
            for answers in batches:
                batch, skipped = result_of(answers)
                self.skipped.add(*skipped)
                yield batch

    def ahead(self, numbers: range) -> Generator[Batch]:
        """Read as `read` does, but by other processes if that saves time.

        See ``workers`` of `larder.readers.data.Data.loader`.
        """
        count = self.workers
        work = self._pickled() if count else None
        starts = (
            self._workers is None and not shared_workers().has(count) and not self._calls_functions
        )
        few = (_FEW_BATCHES if starts else 0) if work else len(numbers)
        threads, rest = self.read(numbers[:few]), numbers[few:]
        stream: BatchStream | None = None
        try:
            for taken, batch in enumerate(threads if few else ()):
                if taken == _LOOK and work and rest:
                    stream = self._begun(work, rest)
                yield batch
            if work is None or not rest:
                return
            stream = stream or self._begun(work, rest)
            if stream is None:
                yield from self.read(rest)
                return
            for _ in rest:
                batch, skipped = stream.take()
                self.skipped.add(*skipped)
                yield batch
            self._keep(work, stream)
            stream = None
        finally:
            threads.close()
            if stream is not None:
                stream.close()

    def batch(self, step: int) -> Batch:
        """Read a batch as `ahead` does, counted from the first batch of the first epoch.

        Several threads may wait for a batch at once.
        """
        work = self._pickled() if self.workers else None
        if work is None:
            epoch, number = divmod(step, len(self))
            with closing(self.read(range(number, number + 1), epoch)) as batches:
                return next(batches)
        batch: Batch
        steps = range(step, step + 1)
        with closing(shared_workers().stream(work, steps, self.workers, step + 1)) as stream:
            batch, skipped = stream.take()
        self.skipped.add(*skipped)
        return batch

    def keys(self, epoch: int, batch: int) -> list[str]:
        """Return the keys of the rank's part of a batch, without reading its samples.

        The order alone decides. With ``on_error="skip"``, training gets other samples of the batch
        in place of samples that cannot be read or decoded.

        Args:
            epoch: Number of the epoch, from 0.
            batch: Number of the batch in the epoch, from 0.

        Raises:
            ConfigError: ``config.invalid_value``: an epoch has no such batch.
        """
        number = whole("batch", batch, 0, len(self) - 1)
        order = self._order(whole("epoch", epoch, 0))
        (draws,) = self._schedule.division(self.world).shares(order, number, number + 1, self.rank)
        samples = (draws % self._schedule.samples).tolist()
        numbers = sorted(set(samples))
        keys = dict(zip(numbers, self._keys_of(np.array(numbers)), strict=True))
        return [keys[sample] for sample in samples]

    @cached_property
    def workers(self) -> int:
        """Number of processes that decode for this process; 0 if its threads decode."""
        if self._workers is not None:
            if self._workers and not IS_SUPPORTED:
                message = "this system has no memory that processes share without files"
                raise invalid(message, "workers", "give workers=0, for threads")
            return self._workers
        is_busy = self._source.is_decoded or self._collate or self._decode not in (None, Decoding())
        if not IS_SUPPORTED or not is_busy or len(self) * self.batch_size < _FEW_SAMPLES:
            return 0
        return max(0, usable_cores() // ranks_of_machine() - 1)

    def make(self, steps: range) -> Generator[Callable[[Empty], LoadedBatch]]:
        """Yield functions that make these batches, in a loader worker, with arrays of a slot.

        Steps are counted from the first batch of the first epoch. Slots are used again, so arrays
        that the user's functions get, and may keep, are never in a slot.
        """
        own = ReusedMemory().empty

        def made(ahead: _Ahead, epoch: int, empty: Empty) -> LoadedBatch:
            read = own if self._calls_functions else empty
            return self._made(ahead, epoch, read, np.empty if self._collate else empty)

        while steps:
            epoch, first = divmod(steps.start, len(self))
            numbers = range(first, len(self), steps.step)[: len(steps)]
            steps = steps[len(numbers) :]
            groups = self._read(epoch, numbers)
            with closing(groups if self._source.is_decoded else made_ahead(groups)) as groups:
                for group in groups:
                    for ahead in group:
                        yield partial(made, ahead, epoch)

    def _begun(self, work: Work, numbers: range) -> BatchStream | None:
        """Return the stream of batches from these numbers on.

        Uses the kept stream if the last epoch ended with the batch before. None if processes cannot
        start and ``workers`` was not given.
        """
        step, until = (self.epoch * len(self) + number for number in (numbers.start, numbers.stop))
        if self._kept is not None:
            (token, following, stream, closer), self._kept = self._kept, None
            closer.detach()
            if (token, following) == (work.token, step) and not stream.is_of_parent:
                stream.go_on(until)
                return stream
            stream.close()
        try:
            return shared_workers().stream(work, range(step, sys.maxsize), self.workers, until)
        except FatalError as error:
            if self._workers or error.code != "run.limit":
                raise
            _logger.warning("threads make the batches of %s: %s", self._schedule.split, error)
            return None

    def _keep(self, work: Work, stream: BatchStream) -> None:
        """Keep a stream, so that its processes go on with the next epoch."""
        closer = weakref.finalize(self, BatchStream.close, stream)
        closer.atexit = False
        self._kept = work.token, (self.epoch + 1) * len(self), stream, closer

    def _pickled(self) -> Work | None:
        """Pickle the loader for other processes; None if impossible and ``workers`` was not given.

        Pickles again if the user's functions have changed since.
        """
        functions = b""
        with suppress(Exception):
            functions = pickle.dumps((self._decode, self._collate))
        if self._work is not None:
            schedule, sent, work = self._work
            if schedule is self._schedule and sent == functions:
                return work
        try:
            data = pickle.dumps(self)
            reason = "it has a function of __main__" if b"__main__" in data else ""
        except Exception as error:  # noqa: BLE001 - of functions and objects of any kind
            reason = f"it cannot be pickled: {error}"
        token, split = os.urandom(8).hex(), self._schedule.split
        work = None if reason else Work(id(self), token, data, len(self), split)
        if reason and self._workers:
            raise invalid(f"{reason}: processes cannot load the loader", "workers", _IMPORTED)
        if reason:
            text = "threads make the batches of %s, as %s; %s"
            _logger.warning(text, split, reason, _IMPORTED)
        self._work = self._schedule, functions, work
        return work

    def skip(self, batches: int) -> None:
        """Go on after this many batches, without reading them, maybe in a later epoch.

        Counts from the last delivered batch, so ``skip(0)`` goes on with an epoch that was left.

        Raises:
            ConfigError: ``config.invalid_value``: a negative number.
        """
        self.go_to(*self._after(whole("batches", batches, 0)))

    def state_dict(self, unfinished: int = 0) -> dict[str, Any]:
        """Return the state of training for `load_state_dict`, a small JSON document.

        The state counts the delivered batches, and is the same on every rank. After the last batch
        of an epoch, it is the beginning of the next epoch. It names the version by its ID, also if
        a tag was opened.

        Args:
            unfinished: Number of last delivered batches that come again, such as a failed batch.

        Raises:
            ConfigError: ``config.invalid_value``: fewer batches were delivered than ``unfinished``.
        """
        delivered = self.epoch * len(self) + self.batches
        again = whole("unfinished", unfinished, 0, delivered)
        return self._schedule.state(*self._after(-again))

    def load_state_dict(self, state: Any) -> None:
        """Go on after the last batch that was delivered when the state was taken.

        The number of ranks and workers may differ. The state decides the kind of order, its window
        and its lanes.

        Raises:
            ConfigError: ``config.invalid_value``: not the state of a loader; or the state of
                another version, split, seed, batch size or ``even``, which the error names.
        """
        self._schedule, self.epoch, self.batches = self._schedule.resumed(state, self.world)
        self.skip(0)  # the state may be the end of an epoch

    def _after(self, batches: int) -> tuple[int, int]:
        """Return the epoch and its number of delivered batches, after this many more."""
        epochs, batches = divmod(self.batches + batches, max(1, len(self)))
        return self.epoch + epochs, batches

    @property
    def _calls_functions(self) -> bool:
        """Whether the user's functions are called for each batch."""
        return bool(self._collate or getattr(self._decode, "calls_functions", False))

    def _read(self, epoch: int, numbers: range) -> Generator[Iterator[_Ahead]]:
        """Yield groups that release each batch when it is taken, so the next reuses its memory.

        Reading of a group may still go on. The next group's requests begin as this group's requests
        end, so connections are busy all the time.
        """
        with ThreadPoolExecutor(2, "larder-group") as pool:
            threads = None if self._source.is_decoded else pool
            for shares in self._groups(epoch, numbers):
                yield _taken(begun(threads, self._read_group, shares))

    def _groups(self, epoch: int, numbers: range) -> Iterator[list[Numbers]]:
        """Yield groups of the rank's draws of batches that fit into half of the memory.

        A group is of one window, whose samples are next to each other in the shards. The first
        group is a single batch, because training waits for it.
        """
        schedule = self._schedule
        order = self._order(epoch)
        division = schedule.division(self.world)
        window = max(1, (schedule.shuffle.window or WINDOW_SAMPLES) // schedule.batch_size)
        limit = self._memory_bytes / numbers.step / 2
        if schedule.shuffle.kind != "window":
            limit = min(limit, _GROUP_BYTES)
        most = 1
        for _, of_window in groupby(numbers, lambda number: number // window):
            first, *others = of_window
            shares = division.shares(order, first, [first, *others][-1] + 1, self.rank)
            shares = shares[:: numbers.step]
            if self._source.is_decoded:  # nothing is read before a batch is made
                yield from ([share] for share in shares)
                continue
            sizes = [self._source.stored_bytes(each % schedule.samples).sum() for each in shares]
            while shares:
                fitting = int(np.searchsorted(np.cumsum(sizes), limit, "right"))
                count = max(1, min(fitting, most))
                yield shares[:count]
                shares, sizes = shares[count:], sizes[count:]
                most = len(numbers)

    def _order(self, epoch: int) -> Order:
        """Return the order of an epoch; the orders of the epochs before and after are kept."""
        schedule, orders = self._ordered or (self._schedule, {})
        if schedule is not self._schedule or epoch not in orders:
            others = orders.items() if schedule is self._schedule else ()
            kept = {other: order for other, order in others if abs(other - epoch) == 1}
            orders = kept | {epoch: self._schedule.order(epoch, self._index)}
            self._ordered = self._schedule, orders
        return orders[epoch]

    def _read_group(self, shares: Sequence[Numbers]) -> list[_Ahead]:
        try:
            return [*map(_Ahead, self._reads(shares), shares)]
        except (DamageError, ObjectError):
            if len(shares) == 1:  # read again, and raised, in turn: the batches before are good
                return [_Ahead(partial(self._read_share, shares[0]), shares[0])]
        return [ahead for share in shares for ahead in self._read_group([share])]

    def _reads(self, shares: Sequence[Numbers]) -> Sequence[Read]:
        samples = self._schedule.samples
        return self._source.read([share % samples for share in shares])

    def _read_share(self, share: Numbers, empty: Empty) -> Any:
        (read,) = self._reads([share])
        return read(empty)

    def _readable(self, share: Numbers) -> _Ahead:
        """Read a share without its damaged samples; other samples are repeated in their place."""
        readable: list[int] = []
        skipped: list[Failure] = []
        for number in share.tolist():
            try:
                self._read_share(np.array([number]), np.empty)
                readable.append(number)
            except DamageError as error:
                if error.code == _WHOLE or len(skipped) == len(share) - 1:
                    raise
                (key,) = self._keys_of(np.array([number % self._schedule.samples]))
                skipped.append(Failure.of(key, error))
        share = np.resize(readable, len(share))
        (read,) = self._reads([share])
        return _Ahead(read, share, skipped)

    def _keys_of(self, samples: Numbers) -> list[str]:
        """Return the keys of samples whose numbers ascend."""
        if self._index is None:
            raise invalid("the elements of a cached function have no keys", self._schedule.split)
        keys: list[str] = self._index.keys_of(samples)
        return keys

    def _decoding(self, groups: Generator[Iterator[_Ahead]], epoch: int) -> Generator[Answers]:
        """Yield each batch as soon as its decoding began.

        So no thread waits for the last sample of a batch before the next batch begins. Batches that
        are only copied are made one by one, because two threads copy no faster.
        """
        empty = ReusedMemory().empty
        is_copied = self._source.is_decoded and not (self._decode or self._collate)
        with closing(groups), ThreadPoolExecutor(2, "larder-batch") as pool:
            threads = None if is_copied else pool
            for group in groups:
                for ahead in group:
                    yield begun(threads, self._made, ahead, epoch, empty, np.empty)

    def _made(self, ahead: _Ahead, epoch: int, read: Empty, empty: Empty) -> LoadedBatch:
        """Make a batch; ``read`` makes the arrays for reading, ``empty`` for decoding."""
        try:
            batch = ahead.read(read)
        except DamageError as error:
            if self._on_error == "raise" or error.code == _WHOLE:
                raise
            ahead = self._readable(ahead.draws)
            batch = ahead.read(read)
        numbers = ahead.draws
        errors: dict[int, ObjectError] = {}
        if self._decode is not None:
            draws = Draws(self._schedule.seed, epoch, numbers)
            on_error = None if self._on_error == "raise" else errors.__setitem__
            batch = self._decode(batch, on_error, draws, empty)
            if len(errors) == len(numbers):
                raise errors.pop(max(errors))
            if errors:
                batch = _filled(batch, len(numbers) - len(errors), len(numbers))
        if self._collate is not None:
            batch = self._collate(rows_of(batch))
        undecoded = [Failure.of(error.where, error) for error in errors.values()]
        errors.clear()  # which keep this frame
        return LoadedBatch(batch, [*ahead.skipped, *undecoded])


def _taken(answers: Answers) -> Iterator[_Ahead]:
    group = deque(result_of(answers))
    while group:
        yield group.popleft()


def _filled(batch: Batch, samples: int, size: int) -> Batch:
    """Repeat the samples of a batch in order up to a size."""
    rows = np.resize(np.arange(samples), size).tolist()
    return {name: chosen(values, rows) for name, values in batch.items()}
