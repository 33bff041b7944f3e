"""Schedules: checked options that decide a loader's batches, and are kept in its state."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol, get_args

import numpy as np

from larder.errors import ConfigError
from larder.readers.epoch_order import (
    Chosen,
    ChosenSamples,
    Division,
    Full,
    Numbers,
    Order,
    Sequential,
    Window,
    default_lanes,
    default_window,
    epoch_words,
)
from larder.readers.options import Batches, By, Even, Kind, Shuffle
from larder.units import format_count, format_names, parse_bytes
from larder.versions.documents import SplitFacts

FORMAT: Final = "larder-loader-1"
MIX_FORMAT: Final = "larder-mix-2"

_MOST_NAMES: Final = 20


class WindowIndex(Protocol):
    @property
    def shard_samples(self) -> Numbers:
        """Number of samples of each shard, in order."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Batches of every epoch of a split, for any number of ranks."""

    dataset: str
    version: str
    split: str
    choice: ChosenSamples
    shards: int
    seed: int
    shuffle: Shuffle
    batch_size: int
    even: Even

    @property
    def name(self) -> str:
        """Name of the samples in messages."""
        return f"{self.dataset}@{self.version} {self.split}"

    @property
    def samples(self) -> int:
        """Number of samples of the split, chosen or not.

        The number of a draw modulo ``samples`` is its sample's number.
        """
        return self.choice.samples

    def division(self, world: int) -> Division:
        return Division(len(self.choice), self.batch_size, world, self.even)

    def order(self, epoch: int, index: WindowIndex) -> Order:
        kind, window, lanes = astuple(self.shuffle)
        words = partial(epoch_words, self.version, self.split, self.seed, epoch)
        draws = None if self.choice.is_all else self.choice.draws(words("choice"))
        order: Order
        if kind == "sequential":
            order = Sequential()
        elif kind == "full":
            order = Full(len(self.choice), words(kind))
        else:
            counts = index.shard_samples
            if draws is not None:
                draws, counts = self.choice.in_shards(draws, counts)
            order = Window(tuple(counts.tolist()), self.batch_size, window, lanes, words(kind))
        return order if draws is None else Chosen(order, draws)

    def state(self, epoch: int, batches: int) -> dict[str, Any]:
        return {"format": FORMAT, **self._facts, "epoch": epoch, "batches": batches}

    @property
    def _facts(self) -> dict[str, Any]:
        names = ("dataset", "version", "split", "seed", "batch_size", "even")
        facts = {name: getattr(self, name) for name in names} | {"order": asdict(self.shuffle)}
        return facts if self.choice.is_all else facts | {"choice": self.choice.digest}

    def resumed(self, state: Any, world: int) -> tuple[Schedule, int, int]:
        """Return the schedule with the order of a state, its epoch and its delivered batches."""
        if isinstance(state, Mapping) and state.get("choice") != self._facts.get("choice"):
            message = "the state is of other samples of the split than this loader has"
            raise invalid(message, "state", "give the same where, limit, weights and seed")
        check_state(state, self.state(0, 0), "loader")
        for name, value in self._facts.items():
            if name != "order" and state[name] != value:
                hint = f"open the same {name}, or start again without the state"
                if name == "batch_size":
                    hint = "batch_size is that of all ranks together, and the same for any number"
                message = f"the state has {name} {state[name]}, this loader {value}"
                raise invalid(message, "state", hint)
        order = state["order"]
        if not isinstance(order, Mapping) or set(order) != {"kind", "window", "lanes"}:
            message = "the order of the state is not that of a loader"
            raise invalid(message, "state", state_hint("loader"))
        shuffle = checked_shuffle(Shuffle(**order), self.batch_size, self.shards)
        if "sequential" in (shuffle.kind, self.shuffle.kind) and shuffle != self.shuffle:
            message = f"the state is of the order {shuffle.kind}, this loader {self.shuffle.kind}"
            raise invalid(message, "state", "give the same shuffle")
        schedule = replace(self, shuffle=shuffle)
        epoch = whole("epoch", state["epoch"], 0)
        batches = whole("batches", state["batches"], 0, self.division(world).batches)
        return schedule, epoch, batches


@dataclass(frozen=True, slots=True)
class MixSchedule:
    """The batches of every epoch of a mix, for any number of ranks.

    The number of a sample is its number in its split, plus the samples of all splits before.
    """

    schedules: tuple[Schedule, ...]
    weights: tuple[float, ...]
    seed: int
    batches: int
    by: By

    @property
    def name(self) -> str:
        return f"a mix of {format_count(len(self.schedules), 'loader')}"

    @property
    def split(self) -> str:
        return "mix"

    @property
    def samples(self) -> int:
        return sum(schedule.samples for schedule in self.schedules)

    @property
    def starts(self) -> Numbers:
        """Number of the first sample of each split."""
        ends = np.cumsum([schedule.samples for schedule in self.schedules], dtype=np.int64)
        return np.concatenate([[0], ends[:-1]])

    @property
    def batch_size(self) -> int:
        return self.schedules[0].batch_size

    @property
    def shuffle(self) -> Shuffle:
        """Order for reading ahead: ``window`` if any loader has windows, else ``full``."""
        windows = [schedule.shuffle.window for schedule in self.schedules]
        window = max((window for window in windows if window), default=None)
        return Shuffle("window", window) if window else Shuffle("full")

    @property
    def run(self) -> int:
        """Number of consecutive samples from one loader."""
        return self.batch_size if self.by == "batch" else 1

    @property
    def runs(self) -> Numbers:
        """Number of runs of each loader in an epoch."""
        total = self.batches * self.batch_size // self.run
        ends = np.cumsum([weight / math.fsum(self.weights) for weight in self.weights])
        runs: Numbers = np.diff(np.rint(ends / ends[-1] * total).astype(np.int64), prepend=0)
        return runs

    def check(self) -> None:
        for number, runs in enumerate(self.runs.tolist(), start=1):
            if not runs:
                hint = "give it a larger weight, leave it out, or use by='sample' or more batches"
                message = (
                    f"an epoch of {self.batches:,} batches has no {self.by} of loader {number}"
                )
                raise invalid(message, "loaders", hint)

    def division(self, world: int) -> Division:
        return Division(self.batches * self.batch_size, self.batch_size, world, "error")

    def order(self, epoch: int, indexes: Sequence[WindowIndex]) -> MixOrder:
        runs = self.runs
        total = int(runs.sum())
        words = epoch_words("mix", self.by, self.seed, epoch, "mix")
        sources = np.repeat(np.arange(len(runs)), runs)[Full(total, words).numbers(0, total)]
        before = np.empty_like(sources)
        before[np.argsort(sources, kind="stable")] = np.concatenate([*map(np.arange, runs)])
        firsts = [epoch * count * self.run for count in runs.tolist()]
        return MixOrder(self, tuple(indexes), sources, before, firsts, self.starts)

    def state(self, epoch: int, batches: int) -> dict[str, Any]:
        loaders = [schedule.state(0, 0) for schedule in self.schedules]
        place = {"epoch": epoch, "batches": batches}
        return {"format": MIX_FORMAT, **self._facts, "loaders": loaders, **place}

    @property
    def _facts(self) -> dict[str, Any]:
        weights = list(self.weights)
        return {"seed": self.seed, "by": self.by, "weights": weights, "length": self.batches}

    def resumed(self, state: Any, world: int) -> tuple[MixSchedule, int, int]:
        """Resume as `Schedule.resumed` does, also with the orders of the loaders."""
        check_state(state, self.state(0, 0), "mix")
        for name, value in self._facts.items():
            if state[name] != value:
                message = f"the state has {name} {state[name]}, this mix {value}"
                raise invalid(message, "state", f"make a mix with the same {name}")
        states = state["loaders"]
        if not isinstance(states, list) or len(states) != len(self.schedules):
            raise invalid("the state is of other loaders", "state", state_hint("mix"))
        pairs = zip(self.schedules, states, strict=True)
        schedules = tuple(schedule.resumed(one, world)[0] for schedule, one in pairs)
        epoch = whole("epoch", state["epoch"], 0)
        batches = whole("batches", state["batches"], 0, self.batches)
        return replace(self, schedules=schedules), epoch, batches


@dataclass(frozen=True)
class MixOrder:
    """The samples of an epoch of a mix.

    Attributes:
        sources: The loader of each run.
        before: Number of earlier runs of the same loader, for each run.
        firsts: Number of samples that each loader has given in earlier epochs.
        starts: Number of the first sample of each loader.
    """

    schedule: MixSchedule
    indexes: tuple[WindowIndex, ...]
    sources: Numbers
    before: Numbers
    firsts: Sequence[int]
    starts: Numbers
    _orders: dict[int, tuple[int, Order]] = field(default_factory=dict)

    def numbers(self, start: int, stop: int) -> Numbers:
        runs, inside = np.divmod(np.arange(start, stop), self.schedule.run)
        sources = self.sources[runs]
        places = self.before[runs] * self.schedule.run + inside
        draws = np.empty_like(places)
        for source in sorted(set(sources.tolist())):
            (rows,) = np.nonzero(sources == source)
            first = self.firsts[source] + int(places[rows[0]])
            draws[rows] = self._draws(source, first, first + len(rows))
        return draws

    def _draws(self, source: int, first: int, stop: int) -> Numbers:
        """Return the draws of a loader at consecutive places of all its epochs.

        A draw's number is its sample's number in the mix, plus the number of all samples of the
        mix for each time that the sample may have been drawn before.
        """
        schedule = self.schedule.schedules[source]
        length, pieces = len(schedule.choice), []
        most = 1 if schedule.choice.weights is None else length
        while first < stop:
            epoch, start = divmod(first, length)
            end = min(length, start + stop - first)
            drawn = self._order(source, epoch).numbers(start, end)
            times, numbers = np.divmod(drawn, schedule.samples)
            times += epoch * most
            pieces.append(numbers + self.starts[source] + times * self.schedule.samples)
            first += end - start
        return np.concatenate(pieces)

    def _order(self, source: int, epoch: int) -> Order:
        """Return the order of a loader's epoch; the last one is kept."""
        made = self._orders.get(source)
        if made is None or made[0] != epoch:
            order = self.schedule.schedules[source].order(epoch, self.indexes[source])
            made = self._orders[source] = epoch, order
        return made[1]


LoaderSchedule = Schedule | MixSchedule


def schedule_of(
    names: tuple[str, str, str],
    facts: SplitFacts,
    chosen: ChosenSamples,
    batches: Batches,
    shuffle: Shuffle,
    seed: int,
    world: int,
) -> Schedule:
    """Check the options of a loader; ``names`` are dataset, version and split."""
    split, samples, shards = names[-1], len(chosen), facts.shards
    seed = whole("seed", seed, 0)
    size = batch_size_of(batches.size, batches.per_rank, world)
    choice("even", batches.even, get_args(Even))
    if batches.even == "error" and samples % size:
        message = f"{format_count(samples, 'sample')} are no whole number of batches of {size:,}"
        raise invalid(message, split, "use even='pad' or 'drop', or another batch_size")
    if shuffle.kind == "window":
        window, lanes = shuffle.window, shuffle.lanes
        window = default_window(size, facts.bytes / facts.samples) if window is None else window
        lanes = default_lanes(size, shards) if lanes is None else lanes
        shuffle = Shuffle("window", window, lanes)
    shuffle = checked_shuffle(shuffle, size, shards)
    return Schedule(*names, chosen, shards, seed, shuffle, size, batches.even)


def checked_shuffle(shuffle: Shuffle, batch_size: int, shards: int) -> Shuffle:
    choice("shuffle", shuffle.kind, get_args(Kind))
    if shuffle.kind != "window":
        if shuffle.window is not None or shuffle.lanes is not None:
            hint = "leave them out, or give larder.Shuffle('window', ...)"
            raise invalid(f"the order {shuffle.kind} has no window and no lanes", "shuffle", hint)
        return shuffle
    window = whole("window", shuffle.window, 1)
    lanes = whole("lanes", shuffle.lanes, 1, shards)
    if window % batch_size:
        hint = f"such as {-(-window // batch_size) * batch_size}"
        raise invalid(f"{window} is no multiple of batch_size, {batch_size}", "window", hint)
    if batch_size % lanes:
        hint = f"such as {default_lanes(batch_size, lanes)}"
        raise invalid(f"{lanes} is no divisor of batch_size, {batch_size}", "lanes", hint)
    return Shuffle("window", window, lanes)


def batch_size_of(of_all: int | None, per_rank: int | None, world: int) -> int:
    """Return the batch size of all ranks together, from this size or the size per rank."""
    if (of_all is None) == (per_rank is None):
        message = "give one of both: the size for all ranks together, or that per rank"
        raise invalid(message, "batch_size")
    if per_rank is not None:
        return whole("batch_size_per_rank", per_rank, 1) * world
    size = whole("batch_size", of_all, 1)
    if size % world:
        hint = f"use {max(1, size // world) * world}, or give the size per rank"
        raise invalid(f"{size} samples cannot be divided among {world} ranks", "batch_size", hint)
    return size


def check_state(state: Any, example: Mapping[str, Any], noun: str) -> None:
    """Refuse a value without the format and fields of a loader's or mix's state."""
    if not isinstance(state, Mapping) or state.get("format") != example["format"]:
        raise invalid(f"this is not the state of a {noun}", "state", state_hint(noun))
    if set(state) != set(example):
        raise invalid(f"the state of a {noun} has other fields", "state", state_hint(noun))


def state_hint(noun: str) -> str:
    return f"give load_state_dict what state_dict of such a {noun} returned"


def whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Check a whole number against bounds; numpy's integers count, booleans do not."""
    bounds = f"from {least} to {most}" if most is not None else f"of at least {least}"
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        raise invalid(f"{value!r} is no whole number {bounds}", name)
    return number


def size_bytes(value: int | str, where: str) -> int:
    """Parse a number of bytes, or a text such as ``2 GB``."""
    if not isinstance(value, str):
        return whole(where, value, 0)
    try:
        return parse_bytes(value)
    except ValueError as error:
        raise invalid(str(error), where) from None


def choice(name: str, value: Any, values: Sequence[str]) -> None:
    if value not in values:
        raise invalid(f"{value!r} is none of {', '.join(values)}", name)


def check_list(names: Any, where: str) -> None:
    """Refuse any value but a list of names; a string would be a list of its letters."""
    if isinstance(names, str) or not isinstance(names, Collection | bool | None):
        hint = f"write [{names!r}]" if isinstance(names, str) else ""
        raise invalid(f"{names!r} is no list of names", where, hint)


def check_function(value: Any, where: str) -> None:
    if value is not None and not callable(value):
        raise invalid(f"{value!r} is no function", where)


def check_columns(names: Collection[str], columns: Iterable[str], where: str = "columns") -> None:
    for name in columns:
        if name not in names:
            hint = f"the values are: {format_names(sorted(names), _MOST_NAMES)}"
            raise invalid(f"there is no value {name!r} in a batch", where, hint)


def invalid(message: str, where: str, hint: str = "") -> ConfigError:
    return ConfigError("config.invalid_value", message, where=where, hint=hint)
