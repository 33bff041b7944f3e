"""What was measured, as cases of one document."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.growing.arithmetic import share_of_equal_shards
from benchmarks.growing.body import FIRST, Step
from benchmarks.growing.contenders import OURS, PEER_NAMES
from benchmarks.growing.daily import SHOWN_DAYS, Daily
from benchmarks.growing.rounds import Result
from benchmarks.harness import Figure

ARITHMETIC = "arithmetic"
FRESH_SHARE = 0.5
MEASURES = {
    "seconds": "seconds",
    "cpu_seconds": "CPU seconds",
    "written_bytes": "bytes written",
    "read_bytes": "bytes read",
    "peak_bytes": "peak bytes of memory",
    "own_peak_bytes": "peak bytes of memory, without mapped files",
}


def figures(result: Result, *, with_peers: bool) -> Iterator[Figure]:
    """The cases of one variant; peers that are not installed are null."""
    first = result.measured[FIRST][OURS]
    steps = {step.name: step for step in result.steps}
    for name, measured in result.measured.items():
        step = steps.get(name)
        case = f"{result.body.name}, {result.variant}: {name}"
        peers = PEER_NAMES if with_peers and (step is None or step.peers) else ()
        ours = measured[OURS]
        for field, what in MEASURES.items():
            beside: dict[str, float | None] = {}
            if step is not None:
                beside[FIRST] = getattr(first, field)
                if field == "written_bytes":
                    beside[ARITHMETIC] = arithmetic_bytes(result, step)
            for peer in peers:
                beside[peer] = getattr(measured[peer], field) if peer in measured else None
            yield Figure(f"{case}: {what}", getattr(ours, field), beside)
        manifests = (ours.manifest_bytes or 0) / result.body.count
        yield Figure(f"{case}: bytes of manifests an object", manifests)


def arithmetic_bytes(result: Result, step: Step) -> float:
    """What the step has to write: its share of the samples, and the shards that it touches.

    The shards that random samples touch on average, less those samples, as a share of the bytes of
    the shards, times what the first build wrote, with a cache or without.
    """
    picks, shards = step.picks, result.shards
    picked = len(picks.removed) + len(picks.changed)
    share = len(picks.added) / result.body.count
    if step.removals == "repack" and picked:
        share += shards.expected_bytes(picked) / shards.total_bytes
        share -= len(picks.removed) / result.body.count
    return share * result.measured[FIRST][OURS].written_bytes


def touched(result: Result) -> Iterator[str]:
    """What the samples of each step touch: equal shards, the real ones, and what was picked."""
    shards = result.shards
    count = len(shards.samples)
    for step in result.steps:
        picked = (*step.picks.removed, *step.picks.changed)
        if not picked or step.removals == "omit":
            continue
        keys = [result.body.names.key(number) for number in picked]
        touched, total = shards.touched(keys), shards.total_bytes
        share = shards.touched_bytes(keys) / total
        fresh = ": more than half, so everything is packed afresh" if share > FRESH_SHARE else ""
        yield (
            f"- {step.name}: {len(picked):,} samples touch"
            f" {share_of_equal_shards(count, len(picked)):.1%} of {count:,} equal shards,"
            f" {shards.expected_share(len(picked)):.1%} of these"
            f" ({shards.expected_bytes(len(picked)) / total:.1%} of their bytes);"
            f" the ones picked are in {len(touched):,} shards"
            f" ({share:.1%} of the bytes{fresh})"
        )


def daily_figures(daily: Daily) -> Iterator[Figure]:
    """The cases of the days."""
    days = len(daily.days)
    case = f"{daily.body.name}, a file a day for {days} days"
    first_written = daily.first.written_bytes + (daily.first.manifest_bytes or 0)
    yield Figure(f"{case}: seconds", daily.seconds, {FIRST: daily.first.seconds})
    yield Figure(f"{case}: bytes written", daily.written_bytes, {FIRST: first_written})
    yield Figure(f"{case}: segments at the end", daily.days[-1].segments or 0)
    first_days = {f"first {SHOWN_DAYS}": daily.first_days_seconds}
    yield Figure(f"{case}: seconds of the last {SHOWN_DAYS}", daily.last_days_seconds, first_days)
    peak = max(day.peak_bytes for day in daily.days)
    yield Figure(f"{case}: peak bytes of memory", peak, {FIRST: daily.first.peak_bytes})
