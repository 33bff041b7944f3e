"""Several loaders as one: a random one gives the next batch, the same on every rank."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from copy import copy
from numbers import Real
from typing import Any, Final

import numpy as np

from larder.readers.batches import Batch
from larder.readers.loader import Loader
from larder.readers.order import Numbers, hashed
from larder.readers.schedule import check_state, invalid, state_hint, whole

FORMAT: Final = "larder-mix-1"

_MOST_SKIPPED: Final = 1 << 22
_MOST_WEIGHT: Final = 1e30


class Mix:
    """The batches of several loaders, as `larder.mix` makes it; it is used like a loader.

    Each batch is of one loader, which is chosen at random by its weight. The choice follows from
    the seed and the number of the batch alone, so it is the same on every rank. An epoch ends after
    ``len(mix)`` batches. A loader whose own epoch ends goes on with its next one, in another order;
    when an epoch of the mix ends, its loaders go on where they are.

    Attributes:
        epoch: The number of the epoch, from 0.
        batches: How many batches of this epoch were delivered.
    """

    def __init__(
        self, loaders: Iterable[tuple[Loader, float]], *, seed: int, batches: int | None
    ) -> None:
        self.epoch = 0
        self.batches = 0
        weighted = list(loaders)
        _check(weighted)
        self._loaders = [loader for loader, _ in weighted]
        for loader in self._loaders:
            loader.together = len(weighted)
        self._weights = [float(weight) for _, weight in weighted]
        self._seed = whole("seed", seed, 0, 2**64 - 1)
        total = sum(map(len, self._loaders))
        self._length = total if batches is None else whole("batches", batches, 1)
        self._start: list[tuple[int, int]] = []

    def __len__(self) -> int:
        """The number of batches of an epoch."""
        return self._length

    def __iter__(self) -> Iterator[Batch]:
        """The batches of an epoch.

        Raises:
            ConfigError: ``config.invalid_value``: a loader was moved or iterated meanwhile.
            LarderError: As of its loaders.
        """
        self._begin()
        with ExitStack() as stack:
            streams = [stack.enter_context(closing(_endless(each))) for each in self._loaders]
            for choice in self._choices(self.batches, len(self)).tolist():
                batch = next(streams[choice])
                self.batches += 1
                yield batch
        self.go_to(*self._after(0))

    def go_to(self, epoch: int, batches: int) -> None:
        """Go on, or begin again, after so many batches of an epoch, from where the loaders are."""
        self.epoch, self.batches = epoch, batches
        self._start = []

    def skip(self, batches: int) -> None:
        """Go on after as many batches, without reading them; it may end in a later epoch."""
        batches = whole("batches", batches, 0, _MOST_SKIPPED)
        choices = self._choices(self.batches, self.batches + batches)
        for loader, count in zip(
            self._loaders, np.bincount(choices, minlength=len(self._loaders)), strict=True
        ):
            loader.skip(count)
        self.go_to(*self._after(batches))

    def state_dict(self) -> dict[str, Any]:
        """Where training is, with the states of the loaders: see `Loader.state_dict`."""
        loaders = [loader.state_dict() for loader in self._loaders]
        epoch, batches = self._after(0)
        place = {"epoch": epoch, "batches": batches, "loaders": loaders}
        return {"format": FORMAT, **self._facts, **place}

    def load_state_dict(self, state: Any) -> None:
        """Go on with the batch after the last one that was delivered when the state was taken.

        Raises:
            ConfigError: ``config.invalid_value``: not the state of a mix; or of one with another
                seed, other weights or another length; or that of a loader is refused.
        """
        check_state(state, self.state_dict(), "mix")
        for name, value in self._facts.items():
            if state[name] != value:
                message = f"the state has {name} {state[name]}, this mix {value}"
                raise invalid(message, "state", f"make a mix with the same {name}")
        epoch = whole("epoch", state["epoch"], 0)
        batches = whole("batches", state["batches"], 0, len(self))
        if not isinstance(state["loaders"], list) or len(state["loaders"]) != len(self._loaders):
            raise invalid("the state is of other loaders", "state", state_hint("mix"))
        for loaders in [copy(loader) for loader in self._loaders], self._loaders:  # all or none
            for loader, its_state in zip(loaders, state["loaders"], strict=True):
                loader.load_state_dict(its_state)
        self.go_to(epoch + batches // len(self), batches % len(self))

    def _begin(self) -> None:
        """Go to where an iteration begins, with all loaders."""
        parts: list[Loader | Mix] = [self, *self._loaders]
        if not self._start or self.batches == len(self):
            self.epoch, self.batches = self._after(0)
            self._start = [(part.epoch, part.batches) for part in parts]
        start = self._start
        for part, place in zip(parts, start, strict=True):
            part.go_to(*place)
        self._start = start

    def _after(self, batches: int) -> tuple[int, int]:
        """As `Loader` has it."""
        epochs, batches = divmod(self.batches + batches, len(self))
        return self.epoch + epochs, batches

    @property
    def _facts(self) -> dict[str, Any]:
        return {"seed": self._seed, "weights": self._weights, "length": self._length}

    def _choices(self, start: int, stop: int) -> Numbers:
        """The loaders of batches, which are counted from the start of this epoch."""
        steps = np.arange(start, stop) + self.epoch * len(self)
        uniform = (hashed(steps, self._seed) >> np.uint64(11)) * 2.0**-53
        bounds = np.cumsum(self._weights)[:-1] / math.fsum(self._weights)
        return np.searchsorted(bounds, uniform, side="right")


def _endless(loader: Loader) -> Generator[Batch]:
    while True:
        yield from loader


def _check(weighted: Sequence[Any]) -> None:
    if not weighted:
        raise invalid("there is no loader to mix", "loaders")
    for pair in weighted:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], Loader)):
            hint = "give pairs such as (data.loader('train', batch_size=256), 0.7)"
            raise invalid(f"{pair!r} is not a loader and its weight", "loaders", hint)
        weight = pair[1]
        number = isinstance(weight, Real) and not isinstance(weight, bool)
        if not number or not 0 < weight <= _MOST_WEIGHT:
            message = f"{weight!r} is no weight: a number above 0, at most {_MOST_WEIGHT:g}"
            raise invalid(message, "loaders")
        if not len(pair[0]):
            raise invalid("a loader has no batches", "loaders", "leave it out")
    if len({id(loader) for loader, _ in weighted}) < len(weighted):
        raise invalid("a loader is there twice", "loaders", "give it once, with its whole weight")
    ranks = {(loader.rank, loader.world) for loader, _ in weighted}
    if len(ranks) > 1:
        listed = ", ".join(f"rank {rank} of {world}" for rank, world in sorted(ranks))
        raise invalid(f"the loaders are of different ranks: {listed}", "loaders")
