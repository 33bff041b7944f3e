"""Several loaders as one: a random one gives the next batch, the same on every rank."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any, Final

import numpy as np

from larder.readers.batches import Batch
from larder.readers.loader import Loader
from larder.readers.order import Numbers, hashed
from larder.readers.schedule import check_state, invalid, state_hint, whole

FORMAT: Final = "larder-mix-1"


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
        self._loaders = [loader for loader, _ in weighted]
        self._weights = [weight for _, weight in weighted]
        _check(self._loaders, self._weights)
        self._seed = whole("seed", seed, 0, 2**64 - 1)
        total = sum(map(len, self._loaders))
        self._length = total if batches is None else whole("batches", batches, 1)

    def __len__(self) -> int:
        """The number of batches of an epoch."""
        return self._length

    def __iter__(self) -> Iterator[Batch]:
        """The rest of the epoch.

        Raises:
            ConfigError: ``config.invalid_value``: a loader was moved or iterated meanwhile.
            LarderError: As of its loaders.
        """
        with ExitStack() as stack:
            streams = [stack.enter_context(closing(_endless(each))) for each in self._loaders]
            for choice in self._choices(self.batches, len(self)).tolist():
                batch = next(streams[choice])
                self.batches += 1
                yield batch
        self.epoch, self.batches = self.epoch + 1, 0

    def skip(self, batches: int) -> None:
        """Go on after as many batches, without reading them; it may end in a later epoch."""
        after = self.batches + whole("batches", batches, 0)
        choices = self._choices(self.batches, after)
        for loader, count in zip(
            self._loaders, np.bincount(choices, minlength=len(self._loaders)), strict=True
        ):
            loader.skip(count)
        self.epoch, self.batches = self.epoch + after // len(self), after % len(self)

    def state_dict(self) -> dict[str, Any]:
        """Where training is, with the states of the loaders: see `Loader.state_dict`."""
        loaders = [loader.state_dict() for loader in self._loaders]
        place = {"epoch": self.epoch, "batches": self.batches, "loaders": loaders}
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
        for loader, its_state in zip(self._loaders, state["loaders"], strict=True):
            loader.load_state_dict(its_state)
        self.epoch, self.batches = epoch, batches

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


def _check(loaders: Sequence[Loader], weights: Sequence[float]) -> None:
    if not loaders:
        raise invalid("there is no loader to mix", "loaders")
    for weight in weights:
        number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not number or not 0 < weight < math.inf:
            raise invalid(f"{weight!r} is no weight: a number above 0", "loaders")
    if len({id(loader) for loader in loaders}) < len(loaders):
        raise invalid("a loader is there twice", "loaders", "give it once, with its whole weight")
    ranks = {(loader.rank, loader.world) for loader in loaders}
    if len(ranks) > 1:
        listed = ", ".join(f"rank {rank} of {world}" for rank, world in sorted(ranks))
        raise invalid(f"the loaders are of different ranks: {listed}", "loaders")
