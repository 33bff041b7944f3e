"""Orders of any split: permutations, divided among ranks without loss or doubling."""

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from larder.readers.epoch_order import (
    ChosenSamples,
    Division,
    Full,
    Order,
    Sequential,
    Window,
    default_lanes,
    default_window,
    epoch_words,
)
from larder.readers.options import Kind, Shuffle
from larder.readers.schedule import Schedule

WORLDS = (1, 2, 3, 4, 6, 8, 12)


@dataclass(frozen=True)
class Case:
    shards: tuple[int, ...]
    batch_size: int
    window: int
    lanes: int
    seed: int
    kind: Kind

    @property
    def samples(self) -> int:
        return sum(self.shards)

    @cached_property
    def order(self) -> Order:
        words = epoch_words("ab" * 16, "train", self.seed, 0, self.kind)
        if self.kind == "window":
            return Window(self.shards, self.batch_size, self.window, self.lanes, words)
        return Full(self.samples, words) if self.kind == "full" else Sequential()

    @cached_property
    def numbers(self) -> list[int]:
        return self.order.numbers(0, self.samples).tolist()

    def shares(self, world: int) -> list[list[list[int]]]:
        """By rank, what it has of each batch."""
        division = Division(self.samples, self.batch_size, world, "pad")
        shares = (division.shares(self.order, 0, division.batches, r) for r in range(world))
        return [[share.tolist() for share in each] for each in shares]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    shards = draw(st.lists(st.integers(0, 60), min_size=1, max_size=12).filter(any))
    batch_size = draw(st.sampled_from([size for size in (1, 2, 5, 12, 24) if size <= sum(shards)]))
    divisors = [n for n in range(1, batch_size + 1) if batch_size % n == 0 and n <= len(shards)]
    window, lanes = batch_size * draw(st.integers(1, 5)), draw(st.sampled_from(divisors))
    kind = draw(st.sampled_from(["sequential", "full", "window"]))
    return Case(tuple(shards), batch_size, window, lanes, draw(st.integers(0, 2**64)), kind)


@given(cases(), st.data())
def test_an_order_has_every_sample_once_wherever_it_is_cut(case, data):
    assert sorted(case.numbers) == list(range(case.samples))
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, case.samples)] * 2)))
    assert case.order.numbers(start, stop).tolist() == case.numbers[start:stop]


@given(cases())
def test_every_world_has_the_same_batches(case):
    size = case.batch_size
    whole = case.samples // size
    for world in (world for world in WORLDS if size % world == 0):
        ranks = case.shares(world)
        assert len(ranks[0]) == math.ceil(case.samples / size)
        for number, shares in enumerate(zip(*ranks, strict=True)):
            assert len({len(share) for share in shares}) == 1, "no rank waits for another"
            batch = [sample for share in shares for sample in share]
            expected = case.numbers[number * size : (number + 1) * size]
            repeated = (expected + case.numbers)[: -len(expected) % world]
            assert batch == expected + repeated
            assert not repeated or number == whole, "only the last batch is padded"


@given(cases(), st.data())
def test_an_epoch_has_what_is_chosen_as_often_as_its_weight_says(case, data):
    numbers = np.array(sorted(data.draw(st.sets(st.integers(0, case.samples - 1), min_size=1))))
    weights = labels = None
    if data.draw(st.booleans()):
        of_each = {"min_size": len(numbers), "max_size": len(numbers)}
        weight = st.floats(0, 1e9).filter(lambda weight: weight == 0 or weight > 1e-9)
        weights = np.array(data.draw(st.lists(weight, **of_each).filter(any)))
        labels = np.array(data.draw(st.lists(st.integers(-1, 4), **of_each)), np.int32)
    choice = ChosenSamples(case.samples, numbers, weights, labels)
    shuffle = Shuffle(case.kind, *((case.window, case.lanes) if case.kind == "window" else ()))
    schedule = Schedule("d", "ab" * 16, "train", choice, 0, case.seed, shuffle, 1, "pad")
    index = SimpleNamespace(shard_samples=np.array(case.shards))
    order = replace(schedule, batch_size=case.batch_size).order(3, index)
    draws = order.numbers(0, len(choice))
    assert len(set(draws.tolist())) == len(numbers) == len(draws), "no two draws are the same"
    counts = np.bincount(draws % case.samples, minlength=case.samples)[numbers]
    if weights is None:
        assert (counts == 1).all()
        return
    expected = weights / weights.sum() * len(numbers)
    assert (abs(counts - expected) < 1 + 1e-6).all()
    for label in range(-1, 5):
        inside = labels == label
        assert abs(counts[inside].sum() - expected[inside].sum()) < 1 + 1e-6
    again = np.sort(draws // case.samples)
    assert again[-1] == counts.max() - 1, "the draws of a sample are counted"


@given(cases(), cases())
def test_another_seed_epoch_split_version_or_kind_is_another_order(one, other):
    arguments = ("ab" * 16, "train", one.seed, 3, one.kind)
    changed = ("cd" * 16, "test", other.seed + 2**65, 4, "other")
    words = {epoch_words(*arguments)}
    for place, value in enumerate(changed):
        words.add(epoch_words(*arguments[:place], value, *arguments[place + 1 :]))
    assert len(words) == 6


lengths = st.integers(1, 3)


@given(lengths, lengths, lengths, lengths, st.sampled_from([1, 2, 4]), st.integers(0, 2**32))
def test_ranks_read_whole_lanes(per_lane, batches, each, lane_shards, world, seed):
    """Shards of equal length: every batch has equally many samples of every lane, and every shard
    is read by one rank; a window is one run of samples of each lane."""
    lanes, batch_size = 4, 4 * per_lane
    window = batch_size * batches
    shard = window // lanes * each
    shards = (shard,) * lanes * lane_shards
    words = epoch_words("ab" * 16, "train", seed, 0, "window")
    order = Window(shards, batch_size, window, lanes, words)
    division = Division(sum(shards), batch_size, world, "error")
    readers = [set[int]() for _ in shards]
    for rank in range(world):
        for share in division.shares(order, 0, division.batches, rank):
            of_shards = Counter((share // shard).tolist())
            assert set(of_shards.values()) == {per_lane}
            for place in of_shards:
                readers[place].add(rank)
    assert all(len(ranks) == 1 for ranks in readers)
    for start in range(0, division.samples, window):
        numbers = np.sort(order.numbers(start, start + window)).reshape(lanes, -1)
        assert (np.diff(numbers) == 1).all()


def test_lanes_and_windows_have_defaults():
    assert [default_lanes(*each) for each in [(256, 1000), (100, 1000), (256, 7), (7, 5)]] == [
        64,
        50,
        4,
        1,
    ]
    assert [default_window(*each) for each in [(256, 0), (256, 110_000), (100, 1), (64, 1e9)]] == [
        4_096,
        2_304,
        4_000,
        64,
    ]
