"""The order of a split's samples in an epoch, as pure functions, so that all ranks agree.

An order puts a sample at each position. It follows from the version, the split, the seed, the epoch
and the kind of order alone. The number of ranks or workers has no influence, nor have numpy's
generators, whose numbers may change with a release. Positions are computed on demand. Memory grows
with the number of shards, or with the square root of the number of samples.

A batch is the next ``batch_size`` samples of the order, and rank r of w has the r-th of w equal
slices of it.
"""

from __future__ import annotations

import hashlib
import heapq
import struct
from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from larder.forking import cached_property
from larder.manifest.digest import canonical_json
from larder.readers.options import Even

Numbers = npt.NDArray[np.int64]
Words = tuple[int, ...]
"""Random 64-bit numbers for an order."""

MOST_LANES = 64
WINDOW_SAMPLES = 4_096
WINDOW_BYTES = 256 * 10**6

_POINT = 1 << 20
"""Units of weight that draw one sample: whole numbers, so that sums are exact."""

_WORDS = 16
_DIGESTS = (b"larder order 1", b"larder order 2")


@dataclass(frozen=True, eq=False)
class ChosenSamples:
    """Chosen samples of a split for an order, with their weights.

    A chosen sample takes 8 bytes of memory, and 12 more with weights. The number of a draw is its
    sample's number plus ``samples`` for each earlier draw of the sample in the epoch. So numbers of
    draws are unique, and without weights equal the numbers of samples.

    Attributes:
        samples: Number of samples in the split.
        numbers: Numbers of the chosen samples, in ascending order; None for all samples.
        weights: Weights of the chosen samples, to draw with replacement; None for every sample
            once.
        labels: With weights, the classes of the samples. The number of draws of a class differs
            by less than one from the number that its weights give.
    """

    samples: int
    numbers: Numbers | None = None
    weights: npt.NDArray[np.float64] | None = None
    labels: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        """Return the number of samples of an epoch."""
        return self.samples if self.numbers is None else len(self.numbers)

    @property
    def is_all(self) -> bool:
        return self.numbers is None and self.weights is None

    @cached_property
    def digest(self) -> str:
        """Digest of the chosen numbers and weights; empty if every sample is chosen once."""
        if self.is_all:
            return ""
        digest = hashlib.sha256(f"{len(self)} of {self.samples}".encode())
        for name, array in (("<i8", self.numbers), ("<f8", self.weights)):
            digest.update(b"" if array is None else array.astype(name).tobytes())
        return digest.hexdigest()[:32]

    def draws(self, words: Words) -> Numbers:
        """Return the draws of an epoch, in ascending order; with weights, ``words`` decide.

        Samples lie on a line, class by class, in random order within a class. A sample's length is
        in proportion to its weight. Points a unit apart, from a random start, each draw the sample
        that they hit (systematic sampling; Madow, 1949). So the draws of a sample, or of a class,
        are in proportion to its weight, rounded up or down.
        """
        numbers = np.arange(self.samples) if self.numbers is None else self.numbers
        if self.weights is None:
            return numbers
        order = np.argsort(hashed(numbers, words[0]))
        if self.labels is not None:
            order = order[np.argsort(self.labels[order], kind="stable")]
        ends = np.cumsum(self.weights[order])
        ends = np.rint(ends / ends[-1] * len(self) * _POINT).astype(np.int64)
        ends = (ends + words[1] % _POINT) // _POINT
        counts = np.empty_like(ends)
        counts[order] = np.diff(ends, prepend=0)
        times = np.arange(len(self)) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.sort(np.repeat(numbers, counts) + self.samples * times)

    def in_shards(self, draws: Numbers, shard_samples: Numbers) -> tuple[Numbers, Numbers]:
        """Sort draws by shard, and count the draws of each shard.

        Repeated draws of a sample follow the first draws of all samples of the shard.
        """
        shards = np.searchsorted(np.cumsum(shard_samples), draws % self.samples, side="right")
        counts = np.bincount(shards, minlength=len(shard_samples))
        return draws[np.argsort(shards, kind="stable")], counts


class Order(Protocol):
    def numbers(self, start: int, stop: int) -> Numbers:
        """Return the numbers of the samples at the positions from ``start`` to ``stop``."""


class Sequential:
    """The order of the samples in the version."""

    def numbers(self, start: int, stop: int) -> Numbers:
        return np.arange(start, stop)


@dataclass(frozen=True)
class Full:
    """A shuffle of all samples.

    The binary digits of a position are split into two halves. Sixteen times, a hash of one half
    changes the other: a Feistel network, which permutes all numbers of this many digits. A result
    that is no sample's number is permuted again until it is (cycle walking; Black and Rogaway,
    "Ciphers with arbitrary finite domains", 2002).
    """

    samples: int
    words: Words

    def numbers(self, start: int, stop: int) -> Numbers:
        values = self._permuted(np.arange(start, stop))
        outside = np.flatnonzero(values >= self.samples)
        while outside.size:
            values[outside] = self._permuted(values[outside])
            outside = outside[values[outside] >= self.samples]
        return values

    def _permuted(self, values: Numbers) -> Numbers:
        low_digits = self._digits // 2
        high, low = values >> low_digits, values & ((1 << low_digits) - 1)
        for of_low, of_high in zip(self._hashes[::2], self._hashes[1::2], strict=True):
            high ^= of_low[low]
            low ^= of_high[high]
        return high << low_digits | low

    @property
    def _digits(self) -> int:
        return (self.samples - 1).bit_length()

    @cached_property
    def _hashes(self) -> list[Numbers]:
        """Hashes of every value of a half, for each round; the low half is hashed first."""
        low_digits = self._digits // 2
        halves = (low_digits, self._digits - low_digits) * (len(self.words) // 2)
        others = (self._digits - low_digits, low_digits) * (len(self.words) // 2)
        return [
            (hashed(np.arange(1 << half), word) & np.uint64((1 << other) - 1)).astype(np.int64)
            for half, other, word in zip(halves, others, self.words, strict=True)
        ]


@dataclass(frozen=True)
class Window:
    """A shuffle of shards, and of samples within windows, which reads few shards at a time.

    Each shard, in a random order, goes to the lane with the fewest samples. A window is a run of
    equal length from every lane, in random order within the lane. A batch has equally many samples
    of each lane, sorted by lane. When lanes end, the other lanes give more.

    Attributes:
        shard_samples: Number of samples of each shard, in the order of the version.
        batch_size: A divisor of ``window_samples``.
        lanes: A divisor of ``batch_size``.
    """

    shard_samples: tuple[int, ...]
    batch_size: int
    window_samples: int
    lanes: int
    words: Words

    def numbers(self, start: int, stop: int) -> Numbers:
        size = self.window_samples
        first = start // size
        windows = [self._window(number) for number in range(first, -(-stop // size))]
        return np.concatenate([np.zeros(0, np.int64), *windows])[
            start - first * size : stop - first * size
        ]

    def _window(self, number: int) -> Numbers:
        start = number * self.window_samples
        stop = min(start + self.window_samples, int(self._lane_samples.sum()))
        runs = np.stack([self._progress(start), self._progress(stop)])
        counts = runs[1] - runs[0]
        lanes = np.repeat(np.arange(self.lanes), counts)
        firsts = np.cumsum(counts) - counts
        places = np.arange(len(lanes)) - np.repeat(firsts, counts)
        slots = places + np.repeat(_starts(self._lane_samples) + runs[0], counts)
        slots = slots[np.lexsort((hashed(slots, self.words[1]), lanes))]
        turns = np.empty_like(lanes)
        turns[np.lexsort((lanes, places))] = np.arange(len(lanes))
        return self._samples_in(slots[np.lexsort((places, lanes, turns // self.batch_size))])

    def _progress(self, position: int) -> Numbers:
        """Count the samples that each lane has given before a position.

        The counts of lanes with samples left differ by at most one.
        """
        lengths = self._lane_samples
        rounds = range(int(lengths.max()) + 1)
        whole = bisect_right(rounds, position, key=lambda n: int(np.minimum(lengths, n).sum())) - 1
        taken = np.minimum(lengths, whole)
        taken[np.flatnonzero(lengths > whole)[: position - int(taken.sum())]] += 1
        return taken

    def _samples_in(self, slots: Numbers) -> Numbers:
        """Return the numbers of samples at places in the concatenated lanes."""
        starts, firsts = self._shard_starts
        shard = np.searchsorted(starts, slots, side="right") - 1
        return firsts[shard] + slots - starts[shard]

    @cached_property
    def _dealt(self) -> list[list[int]]:
        shuffled = np.argsort(hashed(np.arange(len(self.shard_samples)), self.words[0]))
        lanes: list[list[int]] = [[] for _ in range(self.lanes)]
        lengths = [(0, lane) for lane in range(self.lanes)]
        for shard in shuffled.tolist():
            length, lane = lengths[0]
            lanes[lane].append(shard)
            heapq.heapreplace(lengths, (length + self.shard_samples[shard], lane))
        return lanes

    @cached_property
    def _lane_samples(self) -> Numbers:
        return np.array([sum(self.shard_samples[n] for n in lane) for lane in self._dealt])

    @cached_property
    def _shard_starts(self) -> tuple[Numbers, Numbers]:
        """Starts of the shards of all lanes, in the concatenated lanes and in the version."""
        shards = np.array([shard for lane in self._dealt for shard in lane])
        lengths = np.array(self.shard_samples)
        return _starts(lengths[shards]), _starts(lengths)[shards]


class Chosen(NamedTuple):
    """Order of given draws."""

    order: Order
    draws: Numbers

    def numbers(self, start: int, stop: int) -> Numbers:
        return self.draws[self.order.numbers(start, stop)]


class Division(NamedTuple):
    """Division of an epoch into batches, and of each batch among the ranks.

    ``even`` is the use of leftover samples that fill no batch, as in `larder.Batches`.
    """

    samples: int
    batch_size: int
    world: int
    even: Even

    @property
    def batches(self) -> int:
        if self.even == "pad":
            return -(-self.samples // self.batch_size)
        return self.samples // self.batch_size

    @property
    def dropped(self) -> int:
        return max(0, self.samples - self.batches * self.batch_size)

    def batches_of(self, rank: int) -> int:
        """Return a rank's number of batches: here the same for every rank."""
        del rank
        return self.batches

    def shares(self, order: Order, start: int, stop: int, rank: int) -> list[Numbers]:
        """Return a rank's share of each batch from ``start`` to ``stop``."""
        size = self.batch_size
        numbers = order.numbers(start * size, min(stop * size, self.samples - self.dropped))
        batches = [numbers[first : first + size] for first in range(0, len(numbers), size)]
        return [self._share(order, batch, rank) for batch in batches]

    def _share(self, order: Order, batch: Numbers, rank: int) -> Numbers:
        if missing := -len(batch) % self.world:
            others = order.numbers(0, min(missing, self.samples))
            batch = np.concatenate([batch, np.resize(np.concatenate([batch, others]), missing)])
        size = len(batch) // self.world
        return batch[rank * size : (rank + 1) * size]


def epoch_words(version: str, split: str, seed: int, epoch: int, kind: str) -> Words:
    """Derive the words of an epoch's order: two BLAKE2b digests, as numbers."""
    message = canonical_json([version, split, seed, epoch, kind])
    digests = (hashlib.blake2b(message, person=name).digest() for name in _DIGESTS)
    return struct.unpack(f"<{_WORDS}Q", b"".join(digests))


def default_lanes(batch_size: int, shards: int) -> int:
    """Return the largest divisor of the batch size up to 64 and the number of shards."""
    most = min(batch_size, shards, MOST_LANES)
    return next(lanes for lanes in range(most, 0, -1) if batch_size % lanes == 0)


def default_window(batch_size: int, sample_bytes: float) -> int:
    """Count the samples of a window: whole batches up to 4,096 samples and 256 MB, at least one."""
    samples = min(WINDOW_SAMPLES, WINDOW_BYTES / max(sample_bytes, 1))
    return max(1, int(samples / batch_size)) * batch_size


def _starts(lengths: Numbers) -> Numbers:
    return np.cumsum(lengths) - lengths


def hashed(values: Numbers, seed: int) -> npt.NDArray[np.uint64]:
    """Return elements of the splitmix64 sequence of a seed; different values, different hashes.

    Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
    """
    mixed = values.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return mixed ^ mixed >> np.uint64(31)
