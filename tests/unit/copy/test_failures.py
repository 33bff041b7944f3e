"""When a copy with many failures stops early."""

from __future__ import annotations

import pytest

from larder.copy.copy_limits import MIN_FAILURES, UNAVAILABLE, FailureRate
from larder.errors import Failure

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
def test_a_share_of_failures_stops_it_once_they_are_many(
    copied: int, failed: int, max_rate: float, stops: bool
) -> None:
    assert bool(rate(copied, failed, GONE, max_rate).reason) == stops


def test_a_store_that_keeps_failing_stops_it_sooner() -> None:
    assert not rate(1000, UNAVAILABLE - 1, DOWN).reason
    found = rate(1000, UNAVAILABLE, DOWN)
    assert found.reason == f"a store kept failing for {UNAVAILABLE} objects in a row"
    assert UNAVAILABLE < MIN_FAILURES


def test_a_success_ends_the_row_but_takes_no_decision_back() -> None:
    found = rate(0, UNAVAILABLE - 1, DOWN)
    found.succeeded()
    found.failed(DOWN)
    assert not found.reason
    found = rate(0, UNAVAILABLE, DOWN)
    found.succeeded()
    assert found.reason


def test_other_failures_do_not_interrupt_the_row() -> None:
    found = rate(0, UNAVAILABLE - 1, DOWN)
    found.failed(GONE)
    assert not found.reason
    found.failed(DOWN)
    assert found.reason
