"""How many threads copy, against models of servers near and far."""

import threading

import pytest

from larder.copy.threads import Pace, work_off


@pytest.mark.parametrize(
    ("latency_seconds", "most_per_second", "most", "expected"),
    [
        (0.002, 1_000, 256, range(1, 17)),
        *((seconds, 100_000, 256, range(128, 257)) for seconds in (0.05, 0.1, 0.3)),
        (0.1, 50, 256, range(1, 65)),
        (0.3, 100_000, 5, range(5, 6)),
    ],
    ids=["nearby", "far", "farther", "far away", "slow", "at most 5"],
)
def test_a_server_gets_as_many_threads_as_its_distance_needs(
    latency_seconds, most_per_second, most, expected
):
    """A step waits for a time, and uses the only core for half a millisecond."""
    cpu_seconds = 0.0005
    pace = Pace(most, 100.0, 7.0)
    steps = used = 0.0
    counts = []
    for tick in range(1, 151):
        rate = min(pace.count / (latency_seconds + cpu_seconds), 1 / cpu_seconds, most_per_second)
        steps += 0.1 * rate
        used += 0.1 * rate * cpu_seconds
        pace.tell(100.0 + 0.1 * tick, int(steps), 7.0 + used)
        counts.append(pace.count)
    assert counts[-1] in expected
    if most_per_second == 100_000:  # nothing but the distance limits it: half of them come soon
        half = next(tick for tick, count in enumerate(counts, 1) if count >= counts[-1] / 2)
        assert half / 10 <= 20 * latency_seconds


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
        work_off(steps, lambda step: step(), Pace.begin(8), awake=nothing, stop=nothing)

    if allowed:
        run()
        assert sorted(done) == [*range(50)]
    else:
        with pytest.raises(RuntimeError, match="start new thread"):
            run()
