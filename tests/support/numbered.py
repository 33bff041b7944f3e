"""Samples that are their numbers, in memory, and loaders of them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from larder.errors import DamageError
from larder.readers.epoch_order import ChosenSamples, Numbers
from larder.readers.loader import Loader
from larder.readers.options import Batches, Shuffle
from larder.readers.schedule import schedule_of
from larder.readers.sources import ShardSource
from larder.samples.indexed import Sample
from larder.versions.documents import SplitFacts

VERSION = "ab" * 16


class NumberedSamples:
    """As `larder.readers.split.SplitSamples`, of shards with so many samples each.

    Attributes:
        bad: The samples that cannot be read.
        reads: How many samples each call has read.
    """

    def __init__(
        self,
        shards: Sequence[int],
        *,
        bad: Iterable[int] = (),
        each: int = 10,
        labelled: bool = True,
    ) -> None:
        self.shard_samples = np.array(shards)
        self.bad = set(bad)
        self.reads: list[int] = []
        self._each = each
        self._labelled = labelled

    def __len__(self) -> int:
        return int(self.shard_samples.sum())

    def batch(self, numbers: Sequence[int] | Numbers, parts: Any = None) -> list[Sample]:
        self.reads.append(len(numbers))
        for number in numbers:
            if int(number) in self.bad:
                raise DamageError("damage.record", "a part differs", where=f"shard#{number}")
        return [Sample(f"{n:06}", n, {"txt": b"%d" % n}) for n in map(int, numbers)]

    def lots(self) -> Iterator[Numbers]:
        yield from np.array_split(np.arange(len(self)), 3)

    def labels(self) -> Numbers:
        """Three classes, whatever `batch` has for a label."""
        return self.measures_of(np.arange(len(self)))[1]

    def measures_of(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        return self.stored_bytes(numbers), numbers % 3 if self._labelled else numbers * 0 - 1

    def keys_of(self, numbers: Numbers) -> list[str]:
        return [f"{number:06}" for number in numbers.tolist()]

    def stored_bytes(self, numbers: Sequence[int] | Numbers, parts: Any = None) -> Numbers:
        return np.full(len(numbers), self._each)


def number_of(key: str) -> np.int64:
    """That at the end of a key, for processes, which have to import it."""
    return np.int64(key.rpartition("-")[2])


def varied(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """A pair of the number of a sample and a random one, for processes; sample 13 fails."""
    number = int(sample["txt"])
    if number == 13:
        raise ValueError("no sample of mine")
    return {
        "key": sample["key"],
        "pair": np.array([number, rng.integers(1 << 40)]),
        **({"odd": number} if number % 2 else {}),
    }


def loader_of(samples: NumberedSamples, **options: Any) -> Loader:
    loading = {
        "decode": None,
        "memory_bytes": 1_000,
        "on_error": "raise",
        "collate": None,
        "workers": 0,
        "pin": None,
    }
    loading |= {name: options.pop(name) for name in list(options) if name in loading}
    rank, world = options.pop("rank", 0), options.pop("world", 1)
    shards = samples.shard_samples
    facts = SplitFacts(int(shards.sum()), len(shards), 10 * int(shards.sum()), ())
    names = ("toy", options.pop("version", VERSION), options.pop("split", "train"))
    size, per_rank = (options.pop(name, None) for name in ("batch_size", "batch_size_per_rank"))
    batches = Batches(size, per_rank, options.pop("even", "pad"))
    chosen = options.pop("chosen", ChosenSamples(facts.samples))
    given: dict[str, Any] = {"shuffle": Shuffle("full"), "seed": 7} | options
    schedule = schedule_of(names, facts, chosen, batches, world=world, **given)
    source = ShardSource(samples)  # type: ignore[arg-type]
    return Loader(source, schedule, samples, rank=rank, world=world, **loading)  # type: ignore[arg-type]
