import uuid
from dataclasses import dataclass, field

import pytest

from larder.errors import NotFoundError, PreconditionError, RetryableError, StoreError
from larder.store import RetryPolicy, RetryStore
from tests.support.errors import larder_error
from tests.support.memory import MemoryStore
from tests.support.stores import (
    BreakStream,
    FaultyStore,
    LoseAnswer,
    RecordingStore,
    denied,
    keys_of,
    unavailable,
)


@dataclass
class Clock:
    """Time that passes only by sleeping."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def policy(self, **more: float) -> RetryPolicy:
        return RetryPolicy(
            attempts=int(more.pop("attempts", 4)),
            first_delay_seconds=1.0,
            most_delay_seconds=3.0,
            deadline_seconds=more.pop("deadline_seconds", 100.0),
            sleep=self.sleep,
            clock=lambda: self.now,
            uniform=lambda _low, high: high,
        )


@dataclass
class Layers:
    """A store that repeats, over one that fails, over one that counts, over memory."""

    clock: Clock
    faults: FaultyStore
    calls: RecordingStore
    store: RetryStore


@pytest.fixture
def layers() -> Layers:
    clock = Clock()
    calls = RecordingStore(MemoryStore(str(uuid.uuid4())))
    faults = FaultyStore(calls)
    return Layers(clock, faults, calls, RetryStore(faults, clock.policy()))


@pytest.mark.parametrize("method", ["head", "get", "open", "put", "delete"])
def test_a_call_is_repeated(layers, method):
    layers.store.put("k", b"data")
    layers.faults.add(method, unavailable(), times=3)
    arguments = ("k", b"data") if method == "put" else ("k",)
    getattr(layers.store, method)(*arguments)
    assert layers.clock.slept == [1.0, 2.0, 3.0]


def test_several_objects_are_read_one_by_one_after_a_failure(layers):
    objects = [(key, 4, layers.store.put(key, b"data").etag) for key in ("k", "l", "m")]
    layers.faults.add("get", unavailable())
    layers.faults.add("open", unavailable(), times=2)
    assert list(layers.store.get_each(objects)) == [b"data"] * 3
    assert layers.clock.slept == [1.0, 2.0]


def test_no_attempt_starts_after_the_deadline(layers):
    store = RetryStore(layers.faults, layers.clock.policy(attempts=99, deadline_seconds=7))
    layers.faults.add("get", unavailable(), times=None)
    with pytest.raises(RetryableError, match=r"4 tries in 6 s") as caught:
        store.get("k")
    assert caught.value.attempts == 4
    assert layers.clock.now == 6.0


def test_other_errors_are_not_repeated(layers):
    layers.faults.add("get", denied())
    for kind in (StoreError, NotFoundError):
        with pytest.raises(kind):
            layers.store.get("k")
    assert layers.clock.slept == []


def test_a_listing_continues_after_its_last_page(layers):
    keys = [f"{n:04}" for n in range(2500)]
    for key in keys:
        layers.store.put(key, b"")
    layers.faults.add("list", unavailable(), nth=2)
    layers.faults.add("list", unavailable(), nth=3, times=2)
    assert [info.key for page in layers.store.list() for info in page] == keys
    assert layers.calls.count("list") == 3  # each of them continues at its first request for a page
    layers.faults.add("list", unavailable(), nth=2, times=None)
    with pytest.raises(RetryableError):  # or a part would be taken for the whole
        keys_of(layers.store)


def test_a_stream_goes_on_where_it_broke(layers):
    data = bytes(range(256)) * 20_000
    layers.store.put("k", data)
    layers.faults.add("open", BreakStream(2_000_001))
    layers.faults.add("open", BreakStream(1_500_000), nth=1)
    with layers.store.open("k", offset=7, length=5_000_000) as reader:
        assert b"".join(reader) == data[7:5_000_007]
    assert layers.calls.count("open") == 3


def test_a_stream_without_progress_gives_up(layers):
    layers.store.put("k", b"data")
    layers.faults.add("open", BreakStream(0), times=None)
    with pytest.raises(RetryableError, match="4 tries"), layers.store.open("k") as reader:
        b"".join(reader)


def test_a_stream_does_not_continue_in_another_object(layers):
    layers.store.put("k", b"first content")
    layers.faults.add("open", BreakStream(5))
    with layers.store.open("k") as reader:
        layers.calls.put("k", b"other content")
        with pytest.raises(PreconditionError) as caught:
            b"".join(reader)
    assert caught.value.code == "object.changed"


def test_a_conditional_put_with_a_lost_answer_counts_as_written(layers):
    layers.faults.add("put", LoseAnswer())
    info = layers.store.put("k", b"mine", if_absent=True)
    assert info == layers.calls.head("k")

    layers.faults.add("put", LoseAnswer())
    layers.store.put("k", b"mine too", if_match=info.etag)
    assert layers.store.get("k") == b"mine too"


def test_a_conditional_put_that_lost_the_race_is_not_ours(layers):
    layers.calls.put("k", b"their")
    layers.faults.add("put", unavailable())
    with larder_error("object.exists"):
        layers.store.put("k", b"mine!", if_absent=True)


def test_equal_bytes_count_as_written_whoever_sent_the_request_again(layers):
    """A transport does that too, if a connection that it has kept turns out to be closed."""
    there = layers.calls.put("k", b"same")
    assert layers.store.put("k", b"same", if_absent=True) == layers.calls.head("k")
    assert layers.store.put("k", b"same", if_match="0" * 32).etag == there.etag


def test_a_conflict_with_a_deleted_object_stays_a_conflict(layers):
    layers.faults.add("put", unavailable())
    with pytest.raises(PreconditionError):
        layers.store.put("k", b"mine", if_match="gone")


def test_a_writer_is_not_repeated(layers):
    layers.faults.add("commit", unavailable())
    with pytest.raises(RetryableError), layers.store.writer("k") as writer:
        writer.commit()
    assert layers.clock.slept == []


def test_the_pause_is_random():
    clock = Clock()
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return high / 2

    policy = RetryPolicy(attempts=4, sleep=clock.sleep, clock=lambda: clock.now, uniform=uniform)
    faults = FaultyStore(MemoryStore(str(uuid.uuid4())))
    faults.add("get", unavailable(), times=None)
    with pytest.raises(RetryableError):
        RetryStore(faults, policy).get("k")
    assert drawn == [(0.0, 0.25), (0.0, 0.5), (0.0, 1.0), (0.0, 2.0)]
    assert clock.slept == [0.125, 0.25, 0.5]


def test_a_store_that_recovers_after_some_time_is_waited_for(layers):
    """With pauses of the average length; eight tries, as before, took 15 seconds."""
    clock = layers.clock
    policy = RetryPolicy(
        sleep=clock.sleep, clock=lambda: clock.now, uniform=lambda low, high: (low + high) / 2
    )
    layers.store.put("k", b"data")
    layers.faults.add("get", unavailable(), times=10)
    assert RetryStore(layers.faults, policy).get("k") == b"data"
    assert 30 < clock.now < 60
