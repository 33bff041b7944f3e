"""What a copy may use: bandwidth, on average and in bursts, and failures."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from larder.copy.allowance import MIN_FAILURES, UNAVAILABLE, FailureRate
from larder.errors import Failure, FatalError
from larder.store import throttle
from larder.store.throttle import BURST_SECONDS, SLICE_SECONDS, Bandwidth


class FakeClock:
    """Time passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds = max(self.seconds + seconds, math.nextafter(self.seconds, math.inf))

    def bandwidth(self, rate: float) -> Bandwidth:
        return Bandwidth(rate, clock=self, sleep=self.sleep)


@given(
    rate=st.floats(1e3, 1e10),
    steps=st.lists(st.tuples(st.integers(0, 1000), st.floats(0, 10)), min_size=1, max_size=30),
)
def test_no_stretch_of_time_has_more_than_the_limit_and_a_burst(rate, steps):
    clock = FakeClock()
    limit = clock.bandwidth(rate)
    granted: list[tuple[float, int]] = []
    for milliseconds, pause_seconds in steps:
        size_bytes = int(rate * milliseconds / 1000)
        clock.seconds += pause_seconds
        limit.take(size_bytes)
        granted.append((clock.seconds, size_bytes))
    for first, (_, own) in enumerate(granted):
        begun = granted[first - 1][0] if first else 100.0
        total = 0
        for seconds, size_bytes in granted[first:]:
            total += size_bytes
            most = rate * (seconds - begun + BURST_SECONDS)
            assert total <= most * (1 + 1e-6) + 1e-6, own


@given(rate=st.floats(1e3, 1e10), parts=st.lists(st.integers(1, 1000), min_size=1, max_size=20))
def test_nobody_waits_longer_than_the_bytes_take(rate, parts):
    clock = FakeClock()
    sizes = [int(rate * milliseconds / 1000) for milliseconds in parts]
    limit = clock.bandwidth(rate)
    for size_bytes in sizes:
        limit.take(size_bytes)
    expected = max(0.0, sum(sizes) / rate - BURST_SECONDS)
    assert clock.seconds - 100.0 == pytest.approx(expected, rel=1e-6, abs=1e-5)


def test_a_stop_is_noticed_within_a_slice_and_leaves_the_bytes_to_others(monkeypatch):
    clock = FakeClock()
    limit = clock.bandwidth(1000)
    looked: list[float] = []

    def stop() -> None:
        looked.append(clock.seconds)
        if clock.seconds >= 105.0:
            raise FatalError("run.interrupted", "stopped")

    with monkeypatch.context() as patch:
        patch.setattr(throttle, "check_wait", stop)
        with pytest.raises(FatalError):
            limit.take(1_000_000)
    assert max(clock.slept) <= SLICE_SECONDS <= 0.2
    assert looked[-1] == pytest.approx(105.0, abs=SLICE_SECONDS)
    assert max(after - before for before, after in itertools.pairwise(looked)) <= 0.2
    before = clock.seconds
    limit.take(1000)  # not after the 1,000 s that were given back
    assert clock.seconds - before <= 1.0


GONE = Failure("k", "object.missing", "no such object")
DOWN = Failure("k", "store.unavailable", "503", attempts=5)


def rate(copied: int, failed: int, failure: Failure, max_rate: float = 0.01) -> FailureRate:
    found = FailureRate(max_rate)
    for _ in range(copied):
        found.succeeded()
    for _ in range(failed):
        found.failed(failure)
    return found


@pytest.mark.parametrize(
    ("copied", "failed", "max_rate", "stops"),
    [
        (0, 0, 0.01, False),
        (0, MIN_FAILURES - 1, 0.01, False),
        (0, MIN_FAILURES, 0.01, True),
        (99 * MIN_FAILURES, MIN_FAILURES, 0.01, False),
        (99 * MIN_FAILURES - 1, MIN_FAILURES, 0.01, True),
        (0, 10 * MIN_FAILURES, 1.0, False),
        (10**6, MIN_FAILURES, 0.0, True),
    ],
)
def test_a_share_of_failures_stops_it_once_they_are_many(copied, failed, max_rate, stops):
    assert bool(rate(copied, failed, GONE, max_rate).reason) == stops


ALMOST = [DOWN] * (UNAVAILABLE - 1)


@pytest.mark.parametrize(
    ("outcomes", "stops"),
    [
        (ALMOST, False),
        ([*ALMOST, DOWN], True),
        ([*ALMOST, DOWN, None], True),  # no decision is taken back
        ([*ALMOST, None, DOWN], False),
        ([*ALMOST, GONE], False),
        ([*ALMOST, GONE, DOWN], True),
    ],
)
def test_a_store_that_keeps_failing_in_a_row_stops_it_sooner(outcomes, stops):
    assert UNAVAILABLE < MIN_FAILURES
    found = rate(1000, 0, DOWN)
    for failure in outcomes:
        if failure:
            found.failed(failure)
        else:
            found.succeeded()
    reason = f"a store kept failing for {UNAVAILABLE} objects in a row" if stops else ""
    assert found.reason == reason


def test_what_is_left_of_a_batch_may_fail_in_a_row():
    """It is tried again at the end, after everything that succeeds."""
    found = rate(1000, UNAVAILABLE - 1, DOWN)
    for _ in range(UNAVAILABLE):
        found.failed(DOWN, is_last=True)
    assert not found.reason
