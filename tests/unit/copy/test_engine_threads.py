"""How many threads copy, against models of servers near and far."""

import threading

import pytest

from larder.copy.threads import Pace, work_off


def settle(
    *, latency_seconds: float, cpu_seconds: float, most_per_second: float, most: int = 256
) -> tuple[int, float]:
    """The number of threads after 15 seconds, and when half of them were there first.

    A step waits for ``latency_seconds``, and uses the only core for ``cpu_seconds``; the server can
    do ``most_per_second``.
    """
    pace = Pace(most, 100.0, 7.0)
    steps = used = 0.0
    history = []
    for tick in range(1, 151):
        rate = min(pace.count / (latency_seconds + cpu_seconds), 1 / cpu_seconds, most_per_second)
        steps += 0.1 * rate
        used += 0.1 * rate * cpu_seconds
        pace.tell(100.0 + 0.1 * tick, int(steps), 7.0 + used)
        history.append((tick / 10, pace.count))
    half = next(seconds for seconds, count in history if count >= history[-1][1] / 2)
    return history[-1][1], half


def test_a_server_nearby_needs_few_threads():
    count, _ = settle(latency_seconds=0.002, cpu_seconds=0.0005, most_per_second=1_000)
    assert count <= 16


@pytest.mark.parametrize("latency_seconds", [0.05, 0.1, 0.3])
def test_a_server_far_away_soon_has_many(latency_seconds):
    count, half = settle(
        latency_seconds=latency_seconds, cpu_seconds=0.0005, most_per_second=100_000
    )
    assert count >= 128
    assert half <= 20 * latency_seconds


def test_a_slow_server_is_not_stormed():
    count, _ = settle(latency_seconds=0.1, cpu_seconds=0.0005, most_per_second=50)
    assert count <= 64


def test_there_are_never_more_than_the_maximum():
    count, _ = settle(latency_seconds=0.3, cpu_seconds=0.0005, most_per_second=100_000, most=5)
    assert count == 5


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_a_system_that_starts_no_more_threads(monkeypatch, allowed):
    """Those that there are do the work; it waited for ever for one that had not started."""
    started, start = [], threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if len(started) == allowed:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    done: list[int] = []
    monkeypatch.setattr(threading.Thread, "start", limited)

    def run() -> None:
        steps = [lambda number=number: done.append(number) for number in range(50)]
        nothing = list
        work_off(
            steps,
            lambda step: step(),
            Pace.begin(8),
            awake=nothing,
            wake_seconds=0.001,
            stop=nothing,
        )

    if allowed:
        run()
        assert sorted(done) == [*range(50)]
    else:
        with pytest.raises(RuntimeError, match="start new thread"):
            run()
