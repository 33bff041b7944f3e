"""Batches of one rank: read ahead in bounded memory, skipped, moved; what is refused."""

import gc
import json
import pickle
import threading
from functools import partial
from itertools import chain, islice

import numpy as np
import pytest

import larder
from larder.errors import ConfigError, DamageError, ObjectError
from larder.readers.batch_decoding import Decoding
from larder.readers.epoch_order import ChosenSamples
from larder.readers.options import Shuffle
from larder.readers.schedule import Schedule
from tests.support.errors import larder_error
from tests.support.numbered import NumberedSamples, loader_of, varied
from tests.support.processes import run_python, wait_until

SHARDS = (20, 30, 10, 40)
GIVEN = {"batch_size": 8, "shuffle": Shuffle("window", 16, 4)}


@pytest.fixture(params=[0, 2], ids=["threads", "processes"])
def workers(request):
    return request.param


def keys(loader):
    return [batch["key"] for batch in loader]


def refused(call, *arguments, **options):
    with larder_error("config.invalid_value") as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return caught.value.where


def test_an_epoch_is_followed_by_the_next_in_another_order(workers):
    loader = loader_of(NumberedSamples(SHARDS), batch_size=8, workers=workers)
    first, second = keys(loader), keys(loader)
    assert (loader.epoch, loader.batches) == (2, 0)
    assert first != second
    assert sorted(chain(*first)) == sorted(chain(*second)) == [f"{n:06}" for n in range(100)]


def test_a_state_after_the_last_batch_is_the_beginning_of_the_next_epoch():
    loader = loader_of(NumberedSamples(SHARDS), batch_size=8)
    for _ in zip(range(13), loader, strict=False):
        pass  # it is not asked for one more
    assert (loader.epoch, loader.batches) == (0, 13)
    state = loader.state_dict()
    assert (state["epoch"], state["batches"]) == (1, 0)
    loader.load_state_dict(state | {"epoch": 1, "batches": 13})
    assert (loader.epoch, loader.batches) == (2, 0)


def test_it_reads_groups_within_the_memory():
    samples = NumberedSamples(SHARDS, each=10)
    keys(loader_of(samples, **GIVEN, memory_bytes=1_000_000))
    first = sorted(samples.reads[:4])  # two are read at a time
    assert first == [8, 8, 16, 16], "the first batch is not waited for longer"
    assert max(samples.reads) == 16, "a window"
    for memory, most in ((2 * 8 * 10, 8), (0, 8), (2 * 16 * 10, 16)):
        samples = NumberedSamples(SHARDS, each=10)
        keys(loader_of(samples, **GIVEN, memory_bytes=memory))
        assert max(samples.reads) == most
    samples = NumberedSamples(SHARDS, each=2 << 20)
    keys(loader_of(samples, batch_size=8, memory_bytes=1 << 30))
    assert max(samples.reads) == 24, "48 MiB, without a window"


@pytest.mark.parametrize(("workers", "most"), [(1, 32), (2, 16), (4, 8)])
def test_workers_that_divide_the_batches_divide_the_memory(workers, most):
    samples = NumberedSamples(SHARDS, each=10)
    loader = loader_of(samples, batch_size=8, memory_bytes=2 * 32 * 10)
    list(loader.read(range(0, len(loader), workers)))
    assert max(samples.reads) == most


def test_reading_ends_with_the_iteration():
    samples = NumberedSamples(SHARDS)
    loader = loader_of(samples, batch_size=8, memory_bytes=0)
    before = set(threading.enumerate())  # those of other tests
    for _ in loader:
        break
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if "larder-loader" in thread.name]
    assert len(samples.reads) <= 4, "no more than what is next was read"


@pytest.mark.parametrize("mixed", [False, True])
def test_parts_of_the_batches_are_read_without_counting_by_loaders_that_are_pickled(mixed):
    loader = loader_of(NumberedSamples(SHARDS), batch_size=8, rank=1, world=2)
    if mixed:
        other = loader_of(NumberedSamples([80]), batch_size=8, rank=1, world=2, split="b")
        loader = larder.mix([(loader, 0.7), (other, 0.3)], by="sample")
    loader = pickle.loads(pickle.dumps(loader))
    numbers = range(len(loader))
    parts = [[batch["key"] for batch in loader.read(numbers[first::3])] for first in range(3)]
    known = [[loader.keys(epoch, number) for number in numbers] for epoch in range(2)]
    assert loader.batches == 0
    whole = keys(loader)
    assert [parts[number % 3][number // 3] for number in numbers] == whole
    assert known == [whole, keys(loader)], "without reading"
    assert refused(loader.keys, 0, len(loader)) == "batch"
    assert refused(loader.keys, -1, 0) == "epoch"


def test_the_order_of_an_epoch_is_made_once_and_again_for_that_of_a_state(monkeypatch):
    made, order = [], Schedule.order
    monkeypatch.setattr(Schedule, "order", lambda *given: made.append(given) or order(*given))
    one, other = (
        loader_of(NumberedSamples(SHARDS), batch_size=8, shuffle=Shuffle("window", window, 1))
        for window in (16, 32)
    )
    wanted = [other.keys(0, number) for number in (7, 0, 3)]
    assert one.keys(0, 0) != wanted[1]
    one.load_state_dict(other.state_dict())
    assert [one.keys(0, number) for number in (7, 0, 3)] == wanted
    assert len(made) == 3


def test_a_loader_is_pickled_with_where_it_is(workers):
    loader = loader_of(NumberedSamples(SHARDS), **GIVEN, workers=workers)
    loader.skip(4)
    assert keys(pickle.loads(pickle.dumps(loader))) == keys(loader)


def test_samples_are_dropped_or_refused():
    loader = loader_of(NumberedSamples(SHARDS), batch_size=8, even="drop", world=2)
    assert (len(loader), loader.dropped, len(keys(loader))) == (12, 4, 12)
    assert loader_of(NumberedSamples(SHARDS), batch_size=10, even="error").dropped == 0
    where = refused(loader_of, NumberedSamples(SHARDS), batch_size=8, even="error")
    assert where == "train"


@pytest.mark.parametrize("world", [1, 4, 32])
@pytest.mark.parametrize(
    "shuffle", [Shuffle("full"), Shuffle("window", 32, 1), Shuffle("sequential")]
)
def test_a_batch_may_be_larger_than_the_split(shuffle, world):
    given = {"shuffle": shuffle, "batch_size": 32, "world": world}
    ranks = [loader_of(NumberedSamples([2, 3]), rank=rank, **given) for rank in range(world)]
    (shares,) = zip(*map(keys, ranks), strict=True)
    assert {len(share) for share in shares} == {-(-5 // world)}
    assert {key for share in shares for key in share} == {f"{n:06}" for n in range(5)}
    none = loader_of(NumberedSamples([2, 3]), even="drop", **given)
    assert (len(none), none.dropped, keys(none), keys(none), none.epoch) == (0, 5, [], [], 2)


def test_samples_that_can_none_of_them_be_read_are_an_error_also_where_they_are_skipped(workers):
    samples = NumberedSamples(SHARDS, bad=range(1, 100))  # sample 0 never stands for a batch
    with pytest.raises(DamageError):
        keys(loader_of(samples, batch_size=8, on_error="skip", workers=workers))


def test_a_sample_that_is_skipped_counts_when_its_batch_is_delivered(workers):
    *_, last = keys(loader_of(NumberedSamples(SHARDS), batch_size=8))
    samples = NumberedSamples(SHARDS, bad=[int(last[0])])
    loader = loader_of(samples, batch_size=8, on_error="skip", workers=workers)
    assert [loader.skipped.count for _ in loader] == [0] * 12 + [1]


@pytest.mark.parametrize("begin", [0, 7])
def test_the_error_of_a_damaged_sample_comes_when_its_batch_does(workers, begin):
    """Several batches are read at once."""
    given = {"batch_size": 5, "workers": workers, "memory_bytes": 1 << 20}
    keys = [batch["key"] for batch in loader_of(NumberedSamples([200]), **given)]
    bad = int(keys[23][2])
    loader = loader_of(NumberedSamples([200], bad=[bad]), **given)
    loader.skip(begin)
    for _ in range(2):
        with pytest.raises(DamageError):
            list(loader)
        assert loader.batches == 23
        loader.skip(0)
    loader.skip(1)
    assert [batch["key"] for batch in loader] == keys[24:]


@pytest.mark.parametrize("bad", [set(), set(range(50))])
def test_a_shard_that_was_replaced_is_not_skipped(bad):
    class Replaced(NumberedSamples):
        def batch(self, numbers, parts=None):
            samples = super().batch(numbers)
            if 77 in numbers:
                raise DamageError("damage.digest", "the shard was replaced", where="shard")
            return samples

    loader = loader_of(Replaced(SHARDS, bad=bad), batch_size=20, on_error="skip")
    with larder_error("damage.digest"):
        keys(loader)


def odd_refused(value):
    if int(value) % 2:
        raise ObjectError("sample.undecodable", "odd", where=f"{int(value):06}.txt")
    return np.array(int(value))


def test_a_sample_that_cannot_be_decoded_is_an_error_or_skipped(workers):
    decode = Decoding(transforms={"txt": odd_refused})
    given = {"batch_size": 20, "decode": decode, "workers": workers}
    with pytest.raises(ObjectError):
        keys(loader_of(NumberedSamples(SHARDS), **given))
    loader = loader_of(NumberedSamples(SHARDS), **given, on_error="skip")
    batches = [batch["txt"] for batch in loader]
    assert [batch.shape for batch in batches] == [(20,)] * 5
    assert sorted({int(n) for batch in batches for n in batch}) == list(range(0, 100, 2))
    assert loader.skipped.count == 50
    assert loader.skipped.shown[0].key.endswith(".txt")


def test_a_function_draws_the_same_for_any_workers_ranks_and_orders_and_others_in_any_epoch():
    def pairs(rank=0, world=1, **options):
        given = {"batch_size": 8, "decode": Decoding(map=varied), "on_error": "skip", **options}
        loader = loader_of(NumberedSamples(SHARDS), rank=rank, world=world, **given)
        epochs = [
            {tuple(pair) for batch in loader for pair in batch["pair"].tolist()} for _ in "12"
        ]
        assert {failure.key for failure in loader.skipped.shown} <= {"000013"}
        return epochs

    first, second = pairs()
    assert {number for number, _ in first} == set(range(100)) - {13}
    assert not first & second
    assert not first & pairs(seed=8)[0]
    for other in ({"batch_size": 20}, {"shuffle": Shuffle("window", 16)}, {"workers": 2}):
        assert pairs(**other)[0] == first
    assert set.union(*(pairs(rank, 4)[0] for rank in range(4))) == first
    with larder_error("sample.undecodable", "000013"):
        pairs(on_error="raise")


def test_epochs_that_a_process_makes_in_turns_have_their_own_random_numbers():
    def made():
        decode = Decoding(map=varied)
        return loader_of(NumberedSamples([12]), batch_size=4, decode=decode)

    loader = made()
    turns = zip(loader.make(range(3)), loader.make(range(3, 6)), strict=True)
    pairs = [[make(np.empty).batch["pair"].tolist() for make in turn] for turn in turns]
    whole = made()
    expected = [[batch["pair"].tolist() for batch in whole] for _ in range(2)]
    assert [list(epoch) for epoch in zip(*pairs, strict=True)] == expected


def test_a_sample_that_is_drawn_again_is_another_one():
    weights = ChosenSamples(100, weights=np.where(np.arange(100) == 7, 1e6, 1))
    loader = loader_of(
        NumberedSamples(SHARDS), batch_size=50, decode=Decoding(map=varied), chosen=weights
    )
    pairs = [tuple(pair) for batch in loader for pair in batch["pair"].tolist()]
    assert len(set(pairs)) == 100
    assert sum(number == 7 for number, _ in pairs) > 98


def test_a_function_may_make_the_batch_of_the_samples():
    def collate(samples):
        return [sorted(sample) for sample in samples], len(samples)

    decode = Decoding(map=varied, columns=["txt", "key"])
    loader = loader_of(NumberedSamples([12]), batch_size=4, decode=decode, collate=collate)
    names, counts = zip(*loader, strict=True)
    assert counts == (4, 4, 4)
    assert {tuple(each) for batch in names for each in batch} == {
        ("key", "pair"),
        ("key", "odd", "pair"),
    }
    wrong = loader_of(NumberedSamples([2]), batch_size=1, decode=Decoding(map=lambda *_: None))
    assert refused(keys, wrong) == "map"


@pytest.mark.parametrize(
    "move", [lambda each: each.skip(1), iter, lambda each: each.load_state_dict(each.state_dict())]
)
def test_an_iteration_ends_with_an_error_when_the_loader_is_moved(move, workers):
    loader = loader_of(NumberedSamples(SHARDS), batch_size=8, workers=workers)
    batches = iter(loader)
    next(batches)
    moved = move(loader)
    if moved is not None:
        next(moved)
    assert refused(next, batches) == "train"


def test_an_iteration_may_be_collected_by_one_of_its_threads(request):
    gc.disable()  # or this thread may collect it first, and wait for them
    request.addfinalizer(gc.enable)
    forgotten, collected = threading.Event(), threading.Event()

    class Collecting(NumberedSamples):
        def batch(self, numbers, parts=None):
            if threading.current_thread().name.startswith("larder") and len(numbers) > 8:
                assert forgotten.wait(60)
                gc.collect()
                collected.set()
            return super().batch(numbers)

    before = set(threading.enumerate())  # those of other tests
    batches = iter(loader_of(Collecting(SHARDS), batch_size=8))
    next(batches)
    cycle = [batches]
    cycle.append(cycle)
    del batches, cycle
    forgotten.set()
    assert collected.wait(60)
    wait_until(lambda: before.issuperset(threading.enumerate()))


INTERRUPTED = """
import itertools, sys
from tests.support.numbered import NumberedSamples, loader_of

def interrupt(frame, event, argument):
    global left
    if frame.f_code.co_filename.endswith(("threading.py", "_base.py", "thread.py")):
        callers = []
        while frame := frame.f_back:
            callers.append(frame.f_code.co_name)
        left -= event == "return" and "start" not in callers
        if left < 0:
            raise KeyboardInterrupt
    return interrupt

for number in itertools.count():
    left = number
    loader = loader_of(NumberedSamples([12]), batch_size=4)
    try:
        sys.settrace(interrupt)
        for batch in loader:
            pass
        break
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
print(number)
"""


def test_an_interrupt_may_come_while_python_holds_a_lock():
    """At the return of every function of Python's library that the thread calls that trains, but
    for the start of a thread, which Python itself cannot have interrupted.
    """
    done = run_python("-c", INTERRUPTED)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 0


ALIVE = """
import os, sys
from tests.support.numbered import NumberedSamples, loader_of, varied
loader = loader_of(NumberedSamples([40]), batch_size=4, workers=int(sys.argv[1]))
os.batches = iter(loader)  # outlives most modules
next(os.batches)
"""


def test_a_program_may_end_with_an_iteration(workers):
    done = run_python("-c", ALIVE, workers)
    assert (done.returncode, done.stderr) == (0, "")


WRONG = [
    ("batch_size", {}),
    ("batch_size", {"batch_size": 8, "batch_size_per_rank": 4}),
    *[("batch_size", {"batch_size": value}) for value in (0, -1, True, 2.0, "8")],
    ("batch_size", {"batch_size": 9, "world": 2}),
    ("batch_size_per_rank", {"batch_size_per_rank": 0}),
    ("train", {"batch_size": 101, "even": "error"}),
    *[("seed", {"batch_size": 8, "seed": value}) for value in (-1, True, None, 1.5)],
    ("even", {"batch_size": 8, "even": "no"}),
    ("shuffle", {"batch_size": 8, "shuffle": Shuffle("full", window=16)}),
    ("window", {"batch_size": 8, "shuffle": Shuffle("window", window=12)}),
    *[
        ("lanes", {"batch_size": 8, "shuffle": Shuffle("window", lanes=lanes)})
        for lanes in (0, 3, 8)
    ],
]


@pytest.mark.parametrize(("where", "options"), WRONG)
def test_wrong_options_are_refused(where, options):
    assert refused(loader_of, NumberedSamples(SHARDS), **options) == where


def test_whole_numbers_of_numpy_are_numbers():
    options = {"batch_size": np.int32(8), "seed": np.int64(7), "world": np.int64(1)}
    loader = loader_of(NumberedSamples(SHARDS), **options)
    weighted = zip(of_labels(("a", 40), ("b", 80)), (np.int64(1), np.float32(0.5)), strict=True)
    for made in (loader, larder.mix(weighted)):
        assert json.loads(json.dumps(made.state_dict())) == made.state_dict()


def test_batches_that_are_unfinished_come_again():
    loader = loader_of(NumberedSamples(SHARDS), **GIVEN)
    delivered = [*keys(loader), *(batch["key"] for batch in islice(loader, 2))]
    again = loader_of(NumberedSamples(SHARDS), **GIVEN)
    again.load_state_dict(loader.state_dict(unfinished=3))
    assert [*keys(again), *keys(again)[:2]] == delivered[-3:]
    assert refused(loader.state_dict, unfinished=len(delivered) + 1) == "unfinished"
    assert refused(loader.state_dict, unfinished=-1) == "unfinished"


def test_a_state_is_small_and_of_one_version_split_and_seed():
    loader = loader_of(NumberedSamples(SHARDS), **GIVEN, world=2)
    loader.skip(3)
    state = loader.state_dict()
    assert state == {
        "format": "larder-loader-1",
        "dataset": "toy",
        "version": "ab" * 16,
        "split": "train",
        "seed": 7,
        "order": {"kind": "window", "window": 16, "lanes": 4},
        "batch_size": 8,
        "even": "pad",
        "epoch": 0,
        "batches": 3,
    }
    other = loader_of(NumberedSamples(SHARDS), batch_size=8)
    other.load_state_dict(state)
    assert other.state_dict() == state, "the order is that of the state"
    for changed in (
        {"version": "cd" * 16},
        {"split": "test"},
        {"seed": 8},
        {"batch_size": 16},
        {"even": "drop"},
    ):
        with pytest.raises(ConfigError) as caught:
            loader_of(NumberedSamples(SHARDS), **{**GIVEN, **changed}).load_state_dict(state)
        (name,) = changed
        assert (caught.value.where, name in caught.value.message) == ("state", True)


@pytest.mark.parametrize("world", [1, 4])
def test_a_batch_size_per_rank_is_refused_with_another_world(world):
    state = loader_of(NumberedSamples(SHARDS), batch_size_per_rank=4, world=2).state_dict()
    other = loader_of(NumberedSamples(SHARDS), batch_size_per_rank=4, world=world)
    assert refused(other.load_state_dict, state) == "state"


STATES = [None, "state", {}, {"format": "larder-loader-2"}, {"format": "larder-loader-1"}]
CHANGES = [
    {"epoch": -1},
    {"batches": 14},
    {"order": None},
    {"order": {"kind": "sequential", "window": None, "lanes": None}},
    {"order": {"kind": "window"}},
    {"order": {"kind": "none", "window": None, "lanes": None}},
    {"order": {"kind": "full", "window": 8, "lanes": None}},
    {"order": {"kind": "window", "window": 8, "lanes": 5}},
    {"more": 1},
]


@pytest.mark.parametrize("state", STATES)
def test_what_is_no_state_is_refused(state):
    loader = loader_of(NumberedSamples(SHARDS), batch_size=8)
    assert refused(loader.load_state_dict, state) == "state"
    mix = larder.mix([(loader, 1)])
    assert refused(mix.load_state_dict, state) == "state"


@pytest.mark.parametrize("change", CHANGES)
def test_a_state_that_was_changed_is_refused(change):
    loader = loader_of(NumberedSamples(SHARDS), batch_size=8)
    loader.skip(2)
    before = loader.state_dict()
    refused(loader.load_state_dict, before | change)
    assert loader.state_dict() == before


def of_labels(*labels, **options):
    """Loaders of splits that differ in their names and lengths."""
    return [
        loader_of(NumberedSamples([length]), batch_size=4, split=name, **options)
        for name, length in labels
    ]


def test_each_loader_of_a_mix_decodes_its_own_samples():
    loaders = [
        loader_of(
            NumberedSamples([20], bad=[bad]),
            batch_size=10,
            split=f"s{bad}",
            decode=Decoding(transforms={"txt": partial(np.full, bad)}),
            on_error="skip",
        )
        for bad in (3, 5)
    ]
    mix = larder.mix([(loader, 1) for loader in loaders], by="sample")
    assert {value.shape for batch in mix for value in batch["txt"]} == {(3,), (5,)}
    assert {failure.key for failure in mix.skipped.shown} == {"000003", "000005"}


def test_a_mix_of_many_loaders_reads_within_one_bound():
    samples = NumberedSamples([400], each=10)
    loaders = [loader_of(samples, batch_size=8, split=str(n), memory_bytes=800) for n in range(40)]
    mix = larder.mix([(loader, 1) for loader in loaders], by="sample", batches=100)
    batches, before = iter(mix), set(threading.enumerate())
    next(batches)
    names = [thread.name for thread in set(threading.enumerate()) - before]
    assert names.count("larder-loader") == 2  # of the mix, not of its 40 loaders
    assert len(list(batches)) == 99
    assert sum(samples.reads) == 800
    assert max(samples.reads) <= 40


DIFFER = ({"batch_size": 8}, {"on_error": "skip"}, {"collate": list})
TOO_LARGE = (float("nan"), float("inf"), 1.7e308, 10**400)


def test_a_mix_that_makes_no_sense_is_refused():
    one, other = of_labels(("a", 40), ("b", 80))
    (elsewhere,) = of_labels(("c", 8), rank=1, world=2)
    (moved,) = of_labels(("d", 8))
    moved.skip(1)
    same = {"batch_size": 4, "split": "e"}
    for loaders in (
        [],
        [(one, 1), (one, 1)],
        [(one, 1), (elsewhere, 1)],
        [one, other],
        [(one, 1), (larder.mix([(other, 1)]), 1)],
        [(one, 1), (other, 1e-9)],
        [(one, 1), (moved, 1)],
        *[
            [(one, 1), (loader_of(NumberedSamples([8]), **{**same, **differs}), 1)]
            for differs in DIFFER
        ],
        [(one, 1, 1)],
        *[[(one, weight), (other, 1)] for weight in (0, -1, True, "1", *TOO_LARGE)],
    ):
        assert refused(larder.mix, loaders) == "loaders"
    (empty,) = of_labels(("a", 3), even="drop")
    assert refused(larder.mix, [(empty, 1)]) == "loaders"
    assert refused(larder.mix, [(one, 1)], by="epoch") == "by"
    assert refused(larder.mix, [(one, 1)], seed=-1) == "seed"
    assert refused(larder.mix, [(one, 1)], batches=0) == "batches"


def test_a_mix_refuses_the_state_of_another():
    def mixed(seed=1, weight=2.0, split="a", batches=20, by="batch"):
        one, other = of_labels((split, 40), ("b", 80))
        return larder.mix([(one, 1), (other, weight)], seed=seed, batches=batches, by=by)

    mix = mixed()
    mix.skip(7)
    state = json.loads(json.dumps(mix.state_dict()))
    again = mixed()
    again.load_state_dict(state)
    assert [batch["key"] for batch in again] == [batch["key"] for batch in mix]
    for change in ({"seed": 2}, {"weight": 3.0}, {"split": "c"}, {"batches": 21}, {"by": "sample"}):
        other = mixed(**change)
        assert refused(other.load_state_dict, state) == "state"
    assert refused(mixed().load_state_dict, state | {"loaders": state["loaders"][:1]}) == "state"
    assert refused(mixed().load_state_dict, state | {"batches": 21}) == "batches"
    mix, fresh = mixed(), mixed().state_dict()
    batches = iter(mix)
    next(batches)
    before = mix.state_dict()
    for change in ({"seed": 8}, {"epoch": -1}):
        refused(
            mix.load_state_dict,
            fresh | {"loaders": [fresh["loaders"][0], state["loaders"][1] | change]},
        )
        assert mix.state_dict() == before
    next(batches)
