"""What was measured, as cases of one document and as tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from benchmarks.growing.arithmetic import share_of_equal_shards
from benchmarks.growing.body import ADDED, FIRST, REMOVED, Step
from benchmarks.growing.contenders import OURS, PEER_NAMES
from benchmarks.growing.daily import SHOWN_DAYS, Daily
from benchmarks.growing.ours import Measured
from benchmarks.growing.rounds import Result
from benchmarks.harness import Figure

__all__ = ["ARITHMETIC", "daily_figures", "daily_table", "figures", "tables"]

ARITHMETIC = "arithmetic"
LIMIT = "limit"

ADDED_SECONDS = 0.03
ADDED_BYTES = 0.011
OMIT_BYTES = 0.002
MANIFEST_BYTES = 60
SEGMENTS = 16
FRESH_SHARE = 0.5


def figures(result: Result, *, with_peers: bool) -> Iterator[Figure]:
    """The cases of one variant; peers that are not installed are null."""
    first = result.measured[FIRST][OURS]
    names = {step.name: step for step in result.steps}
    for name, found in result.measured.items():
        step = names.get(name)
        case = f"{result.body.name}, {result.variant}: {name}"
        peers = PEER_NAMES if with_peers and (step is None or step.peers) else ()
        ours = found[OURS]

        def others(
            field: str, peers: Sequence[str] = peers, found: Mapping[str, Measured] = found
        ) -> dict[str, float | None]:
            return {peer: getattr(found[peer], field) if peer in found else None for peer in peers}

        def beside(field: str, is_step: bool = step is not None) -> dict[str, float | None]:
            return {FIRST: getattr(first, field)} if is_step else {}

        counted = {} if step is None else {ARITHMETIC: arithmetic_bytes(result, step)}
        targets = _targets(result, step)
        yield Figure(
            f"{case}: seconds", ours.seconds, beside("seconds") | others("seconds"), targets[0]
        )
        yield Figure(
            f"{case}: bytes written",
            ours.written_bytes,
            beside("written_bytes") | counted | others("written_bytes"),
            targets[1],
        )
        yield Figure(
            f"{case}: bytes of manifests an object",
            (ours.manifest_bytes or 0) / result.body.count,
            {LIMIT: MANIFEST_BYTES},
            1.0 if step is not None and step.name == ADDED else None,
        )
        for field, what in (("read_bytes", "bytes read"), ("peak_bytes", "peak bytes of memory")):
            yield Figure(f"{case}: {what}", getattr(ours, field), beside(field) | others(field))


def _targets(result: Result, step: Step | None) -> tuple[float | None, float | None]:
    """Those of the seconds and of the bytes written."""
    if step is None:
        return None, None
    if step.name == ADDED:
        return ADDED_SECONDS if result.body.real else None, ADDED_BYTES
    if step.name.startswith(REMOVED) and step.removals == "omit":
        return None, OMIT_BYTES
    return None, None


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


def tables(result: Result) -> str:
    """The tables of one variant, in Markdown."""
    first = result.measured[FIRST]
    rows = [
        (step, who, *_cells(measured, first[who], result.body.count))
        for step, found in result.measured.items()
        for who, measured in found.items()
    ]
    heads = ("step", "who", "seconds", "of first", "CPU s", "of first")
    more = (
        "written MB",
        "of first",
        "manifests B/object",
        "read MB",
        "peak MB",
        "own MB",
        "segments",
    )
    shown = [markdown((*heads, *more), rows), "", "\n".join(_touched(result))]
    return f"\n### {result.body.name}, {result.variant}\n\n" + "\n".join(shown) + "\n"


def _cells(measured: Measured, first: Measured, count: int) -> Iterator[str]:
    manifests = measured.manifest_bytes
    yield f"{measured.seconds:.2f}"
    yield f"{measured.seconds / first.seconds:.1%}"
    yield f"{measured.cpu_seconds:.2f}"
    yield f"{measured.cpu_seconds / first.cpu_seconds:.1%}"
    yield f"{measured.written_bytes / 1e6:,.2f}"
    yield f"{measured.written_bytes / first.written_bytes:.2%}" if first.written_bytes else "-"
    yield "-" if manifests is None else f"{manifests / count:.1f}"
    yield f"{measured.read_bytes / 1e6:,.1f}"
    yield f"{measured.peak_bytes / 1e6:,.0f}"
    yield f"{measured.own_peak_bytes / 1e6:,.0f}"
    yield "-" if measured.segments is None else f"{measured.segments}"


def _touched(result: Result) -> Iterator[str]:
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
    last = daily.days[-1].segments or 0
    yield Figure(f"{case}: seconds", daily.seconds, {FIRST: daily.first.seconds})
    yield Figure(f"{case}: bytes written", daily.written_bytes, {FIRST: first_written})
    yield Figure(f"{case}: segments at the end", last, {LIMIT: SEGMENTS}, 1.0)
    yield Figure(
        f"{case}: seconds of the last {SHOWN_DAYS}",
        daily.last_days_seconds,
        {f"first {SHOWN_DAYS}": daily.first_days_seconds},
    )
    peak = max(day.peak_bytes for day in daily.days)
    yield Figure(f"{case}: peak bytes of memory", peak, {FIRST: daily.first.peak_bytes})


def daily_table(daily: Daily) -> str:
    """The days, in Markdown."""
    days, shown = daily.days, SHOWN_DAYS
    ordered = sorted(day.seconds for day in days)
    rows = [
        ("first build", f"{daily.first.seconds:.2f} s"),
        (f"all {len(days)} days", f"{daily.seconds:.1f} s"),
        (f"first {shown} days", f"{daily.first_days_seconds:.2f} s"),
        (f"last {shown} days", f"{daily.last_days_seconds:.2f} s"),
        ("a day, median and longest", f"{ordered[len(days) // 2]:.2f} s, {ordered[-1]:.2f} s"),
        ("written in all days", f"{daily.written_bytes / 1e6:,.1f} MB"),
        ("of that manifests", f"{sum(day.manifest_bytes or 0 for day in days) / 1e6:,.1f} MB"),
        ("read in all days", f"{sum(day.read_bytes for day in days) / 1e6:,.1f} MB"),
        ("segments at the end", f"{days[-1].segments}"),
    ]
    title = f"\n### {daily.body.name}, a file a day for {len(days)} days\n\n"
    return title + markdown(("what", "how much"), rows) + "\n"


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, all but the first column aligned to the right."""
    marks = ["---", *("---:" for _ in heads[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, marks, *rows))
