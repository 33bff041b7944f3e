"""The order of the samples of a split in an epoch, as pure functions: what every rank agrees on.

An order says which sample is at which position. It follows from the version, the split, the seed,
the epoch and the kind of order alone, never from the number of ranks or workers; nor from numpy's
generators, whose numbers may change with a release. Positions are computed where they are needed,
so memory does not grow with the split, but for some numbers for each shard, or for the square root
of the number of samples.

===============  ============================================================================
``sequential``   as in the version
``full``         a shuffle of all samples
``window``       shards are shuffled, and samples within a window of a few thousand of them
===============  ============================================================================

A batch is the next ``batch_size`` samples of the order, and rank r of w has the r-th of w equal
slices of it.
"""

from __future__ import annotations

import hashlib
import heapq
import struct
from bisect import bisect_right
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from larder.forking import cached_property
from larder.manifest.digest import canonical_json
from larder.readers.options import Even

Numbers = npt.NDArray[np.int64]
Words = tuple[int, ...]
"""Random numbers of 64 bits that an order follows from."""

MOST_LANES = 64
WINDOW_SAMPLES = 4_096
WINDOW_BYTES = 256 * 10**6

_POINT = 1 << 20
"""What draws one sample, of weights that add up to a whole number of them: sums are exact."""

_WORDS = 16
_DIGESTS = (b"larder order 1", b"larder order 2")


@dataclass(frozen=True, eq=False)
class ChosenSamples:
    """The samples of a split that are in an order, and how often.

    Each takes 8 bytes of memory, and 12 more with weights. The number of a draw is that of its
    sample, and for each time that the sample was drawn before in the epoch, the number of samples
    of the split more: no two are the same, and without weights a draw is a sample.

    Attributes:
        samples: How many the split has.
        numbers: Those that are chosen, in ascending order; None for all.
        weights: Of each that is chosen, to be drawn with replacement; None to have each once.
        labels: With weights, the classes of the samples: each class is drawn as often as its
            samples together are to be, but for less than one time.
    """

    samples: int
    numbers: Numbers | None = None
    weights: npt.NDArray[np.float64] | None = None
    labels: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        """The number of samples that an epoch has."""
        return self.samples if self.numbers is None else len(self.numbers)

    @property
    def is_all(self) -> bool:
        """Whether an epoch has each sample of the split once."""
        return self.numbers is None and self.weights is None

    @cached_property
    def digest(self) -> str:
        """Of what is chosen, not of the function that chose it; empty if that is all."""
        if self.is_all:
            return ""
        digest = hashlib.sha256(f"{len(self)} of {self.samples}".encode())
        for name, array in (("<i8", self.numbers), ("<f8", self.weights)):
            digest.update(b"" if array is None else array.astype(name).tobytes())
        return digest.hexdigest()[:32]

    def draws(self, words: Words) -> Numbers:
        """What an epoch has, in ascending order; with weights it follows from random numbers.

        Samples are in a random order within their class, where every one takes a length in
        proportion to its weight, and points are a unit apart from a random one on: each draws the
        sample that it is in (systematic sampling; Madow, 1949). So every sample, and every class,
        is drawn as often as its weight says, rounded up or down.
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
        """Draws in the order of their shards, and how many each shard has; a sample that is drawn
        again is so after all others of its shard.
        """
        shards = np.searchsorted(np.cumsum(shard_samples), draws % self.samples, side="right")
        counts = np.bincount(shards, minlength=len(shard_samples))
        return draws[np.argsort(shards, kind="stable")], counts


class Order(Protocol):
    """The samples of an epoch in order."""

    def numbers(self, start: int, stop: int) -> Numbers:
        """The numbers of the samples at the positions from ``start`` to ``stop``."""


@dataclass(frozen=True, slots=True)
class Sequential:
    """Samples as they are in the version."""

    def numbers(self, start: int, stop: int) -> Numbers:
        return np.arange(start, stop)


@dataclass(frozen=True)
class Full:
    """A shuffle of all samples.

    A position is its binary digits in two halves. Sixteen times, one half is changed by a hash of
    the other: a Feistel network, which is a permutation of all numbers with so many digits. What
    leads to a number that is no sample's is permuted again until it leads to one (Black and
    Rogaway, "Ciphers with arbitrary finite domains", 2002: cycle walking).
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
        """The hash of every value of a half, for each round; the low half is hashed first."""
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

    Each shard, in a random order, goes to the lane that has the fewest samples. A window is a run
    of equal length of every lane, in random order within the lane; a batch has equally many samples
    of each lane, sorted by lane. When lanes end, the others give more.

    Attributes:
        shard_samples: The number of samples of each shard, in the order of the version.
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
        slots = places + np.repeat(self._lane_starts + runs[0], counts)
        slots = slots[np.lexsort((hashed(slots, self.words[1]), lanes))]
        turns = np.empty_like(lanes)
        turns[np.lexsort((lanes, places))] = np.arange(len(lanes))
        return self._samples_in(slots[np.lexsort((places, lanes, turns // self.batch_size))])

    def _progress(self, position: int) -> Numbers:
        """How many samples each lane has given before a position: as many as any other that has
        more, or one fewer.
        """
        lengths = self._lane_samples
        rounds = range(int(lengths.max()) + 1)
        whole = bisect_right(rounds, position, key=lambda n: int(np.minimum(lengths, n).sum())) - 1
        taken = np.minimum(lengths, whole)
        taken[np.flatnonzero(lengths > whole)[: position - int(taken.sum())]] += 1
        return taken

    def _samples_in(self, slots: Numbers) -> Numbers:
        """The numbers of samples, given their places in all lanes, one after the other."""
        shard = np.searchsorted(self._slot_starts, slots, side="right") - 1
        return self._firsts[shard] + slots - self._slot_starts[shard]

    @cached_property
    def _dealt(self) -> list[list[int]]:
        """The shards of each lane."""
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
    def _lane_starts(self) -> Numbers:
        return _starts(self._lane_samples)

    @cached_property
    def _shards(self) -> Numbers:
        """The shards of all lanes, one after the other."""
        return np.array([shard for lane in self._dealt for shard in lane])

    @cached_property
    def _firsts(self) -> Numbers:
        return _starts(np.array(self.shard_samples))[self._shards]

    @cached_property
    def _slot_starts(self) -> Numbers:
        return _starts(np.array(self.shard_samples)[self._shards])


@dataclass(frozen=True, slots=True)
class Chosen:
    """An order of as many draws."""

    order: Order
    draws: Numbers

    def numbers(self, start: int, stop: int) -> Numbers:
        return self.draws[self.order.numbers(start, stop)]


@dataclass(frozen=True, slots=True)
class Division:
    """How an epoch is divided into batches, and each batch among the ranks.

    Attributes:
        even: What becomes of samples that make no whole batch. ``pad``: a last, smaller batch, in
            which samples are repeated, so that every rank has equally many. ``drop``: they are left
            out. ``error``: there are none.
    """

    samples: int
    batch_size: int
    world: int
    even: Even

    @property
    def batches(self) -> int:
        """The number of batches, of every rank."""
        if self.even == "pad":
            return -(-self.samples // self.batch_size)
        return self.samples // self.batch_size

    @property
    def dropped(self) -> int:
        """The number of samples that an epoch leaves out."""
        return max(0, self.samples - self.batches * self.batch_size)

    def shares(self, order: Order, start: int, stop: int, rank: int) -> list[Numbers]:
        """What a rank has of each batch from ``start`` to ``stop``."""
        size = self.batch_size
        numbers = order.numbers(start * size, min(stop * size, self.samples))
        batches = [numbers[first : first + size] for first in range(0, len(numbers), size)]
        return [self._share(order, batch, rank) for batch in batches]

    def _share(self, order: Order, batch: Numbers, rank: int) -> Numbers:
        if missing := -len(batch) % self.world:
            others = order.numbers(0, min(missing, self.samples))
            batch = np.concatenate([batch, np.resize(np.concatenate([batch, others]), missing)])
        size = len(batch) // self.world
        return batch[rank * size : (rank + 1) * size]


def epoch_words(version: str, split: str, seed: int, epoch: int, kind: str) -> Words:
    """Two BLAKE2b digests, as numbers, of what the order is for."""
    message = canonical_json([version, split, seed, epoch, kind])
    digests = (hashlib.blake2b(message, person=name).digest() for name in _DIGESTS)
    return struct.unpack(f"<{_WORDS}Q", b"".join(digests))


def default_lanes(batch_size: int, shards: int) -> int:
    """The largest divisor of the batch size that is at most 64 and the number of shards."""
    most = min(batch_size, shards, MOST_LANES)
    return next(lanes for lanes in range(most, 0, -1) if batch_size % lanes == 0)


def default_window(batch_size: int, sample_bytes: float) -> int:
    """So many whole batches as 4,096 samples make, or 256 MB of them if that is less."""
    samples = min(WINDOW_SAMPLES, WINDOW_BYTES / max(sample_bytes, 1))
    return max(1, int(samples / batch_size)) * batch_size


def _starts(lengths: Numbers) -> Numbers:
    return np.cumsum(lengths) - lengths


def hashed(values: Numbers, seed: int) -> npt.NDArray[np.uint64]:
    """Element ``value`` of the sequence that splitmix64 makes from a seed; no two are the same.

    Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
    """
    mixed = values.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return mixed ^ mixed >> np.uint64(31)
