"""Training that is stopped anywhere, and goes on with another number of ranks."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from required import nightly

import larder
from larder.readers.batch_decoding import Decoding
from larder.readers.epoch_order import ChosenSamples
from larder.readers.loader import Loader
from larder.readers.mix import Mix
from larder.readers.options import Shuffle
from tests.support.numbered import NumberedSamples, loader_of

pytestmark = [
    pytest.mark.push,
    pytest.mark.timeout(900),  # 500 trials take minutes where other tests run beside them
]

TRIALS = 500 if nightly() else 40
BATCH = 12
WORLDS = (1, 2, 3, 4, 6, 12)


@st.composite
def chosen(draw: st.DrawFn, samples: int) -> ChosenSamples:
    """Some samples of a split, each once an epoch, or with weights."""
    every = st.integers(0, samples - 1)
    numbers = np.array(sorted(draw(st.sets(every, min_size=13, max_size=samples))), np.int64)
    weights = None
    if draw(st.booleans()):
        size = len(numbers)
        weights = np.array(draw(st.lists(st.integers(1, 9), min_size=size, max_size=size)), float)
    return ChosenSamples(samples, numbers, weights)


@st.composite
def options(draw: st.DrawFn, **fixed: Any) -> dict[str, Any]:
    """What all ranks of a run agree on."""
    shards = draw(
        st.lists(st.integers(1, 30), min_size=1, max_size=6).filter(lambda n: sum(n) > 12)
    )
    kind = draw(st.sampled_from(["full", "window", "sequential"]))
    shuffle = Shuffle(kind, BATCH * draw(st.integers(1, 3)) if kind == "window" else None)
    choices = {"seed": draw(st.integers(0, 5)), "even": draw(st.sampled_from(["pad", "drop"]))}
    if draw(st.booleans()):
        choices["chosen"] = draw(chosen(sum(shards)))
    choices["workers"] = draw(st.sampled_from([0, 2]))
    return {"shards": shards, "shuffle": shuffle, **choices, **fixed}


def varied(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"key": f"{sample['key']} {rng.integers(1 << 40)}"}


def made(rank: int, world: int, *, shards: list[int], **given: Any) -> Loader:
    decode = Decoding(map=varied)
    if rank:
        given["workers"] = 0  # one rank may have processes, others have threads
    return loader_of(
        NumberedSamples(shards), batch_size=BATCH, rank=rank, world=world, decode=decode, **given
    )


def mixed(rank: int, world: int, *, parts: list[dict[str, Any]], **given: Any) -> Mix:
    weighted = [(made(rank, world, **part), weight) for weight, part in enumerate(parts, start=1)]
    return larder.mix(weighted, batches=8, **given)


def delivered(ranks: list[Loader] | list[Mix], stop: int) -> list[tuple[int, list[str]]]:
    """The epoch and the keys of so many batches of all ranks, epoch after epoch."""
    batches: list[tuple[int, list[str]]] = []
    while len(batches) < stop:
        epoch = ranks[0].epoch
        for shares in zip(*ranks, strict=True):
            batches.append((epoch, [key for share in shares for key in share["key"]]))
            if len(batches) == stop:
                return batches
    return batches


def goes_on(make: Any, given: dict[str, Any], data: st.DataObject) -> None:
    """Several times, training stops after some batches, and another number of ranks goes on."""
    length = len(make(0, 1, **given))
    expected = delivered([make(0, 1, **given)], 3 * length)
    batches: list[tuple[int, list[str]]] = []
    state: Any = None
    while len(batches) < len(expected):
        world = data.draw(st.sampled_from(WORLDS))
        ranks = [make(rank, world, **given) for rank in range(world)]
        for rank in ranks:
            if state is not None:
                rank.load_state_dict(json.loads(json.dumps(state)))
        stop = data.draw(st.integers(1, len(expected) - len(batches)))
        batches += delivered(ranks, stop)
        states = [rank.state_dict() for rank in ranks]
        assert all(each == states[0] for each in states)
        state = states[0]
        if data.draw(st.booleans()):  # SIGKILL: what follows the last saved state is repeated
            saved = make(0, 1, **given)
            back = data.draw(st.integers(0, len(batches)))
            del batches[back:]
            saved.skip(back)
            state = saved.state_dict()
    for (epoch, keys), (same_epoch, whole) in zip(batches, expected, strict=True):
        assert (epoch, keys[: len(whole)]) == (same_epoch, whole), "none is lost, none doubled"
        assert len(keys) == len(whole) or len(whole) < BATCH, "the last batch of an epoch is padded"


@settings(max_examples=TRIALS)
@given(options(), st.data())
def test_a_run_goes_on_with_the_same_batches(given, data):
    goes_on(made, given, data)


@settings(max_examples=TRIALS // 5)
@given(
    st.lists(options(), min_size=1, max_size=3),
    st.integers(0, 9),
    st.sampled_from(["batch", "sample"]),
    st.data(),
)
def test_a_mix_goes_on_with_the_same_batches(parts, seed, by, data):
    goes_on(mixed, {"parts": parts, "seed": seed, "by": by}, data)
