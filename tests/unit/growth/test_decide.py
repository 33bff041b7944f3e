"""What becomes of the segments of a version: every row of the table, and both sides of borders."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from larder.config.models.dataset import Growth
from larder.growth.compare import Changes
from larder.growth.decision import MAX_SEGMENTS, Decision, decide
from larder.growth.previous import PreviousSegment
from larder.jobs.results import Totals
from larder.manifest.sealed import StoredFile
from larder.versions.documents import SegmentDocument, Shape
from larder.versions.index import Shard as PublishedShard
from larder.versions.omitted import Omitted

APPEND = Growth()
OMIT = Growth(removals="omit")
REBUILD = Growth(mode="rebuild")

Shard = tuple[int, int, int, int]
"""Of a shard: rows, rows before, rows that are live, and bytes."""


def segment(name: str, *shards: Shard, form: int = 1) -> PreviousSegment:
    """A segment of one split; each shard omits its first rows. A form before 1 has a fault."""
    published, omitted, first_row = [], [], 0
    for rows, before, _, size_bytes in shards:
        file = StoredFile("p", size_bytes, "0" * 64, "shard")
        published.append(PublishedShard(name, "train", first_row, rows, 0, (file,)))
        omitted.append((first_row, first_row + rows - before))
        first_row += rows
    split = SimpleNamespace(first_row=0)
    shape = Shape("webdataset", form, 1, {}, None)
    document = SimpleNamespace(id=name, splits={"train": split}, shape=shape)
    ranges = Omitted.of_ranges(np.array(omitted, np.int64).reshape(-1, 2), 0, first_row)
    live = np.array([shard[2] for shard in shards], np.int64)
    return PreviousSegment(cast(SegmentDocument, document), {"train": ranges}, published, live)


def whole(name: str, *sizes: int) -> PreviousSegment:
    """Shards of ten samples each, none of which has changed."""
    return segment(name, *((10, 10, 10, size) for size in sizes))


def shape(decision: Decision) -> dict[str, list[int]]:
    """The segments that are kept, with the shards that are packed again."""
    return {name: np.flatnonzero(flags).tolist() for name, flags in decision.again.items()}


def many(small: int, *, first: Sequence[int] = (1000,)) -> list[PreviousSegment]:
    return [
        *(whole(f"large-{n}", size) for n, size in enumerate(first)),
        *(whole(f"small-{n}", 1) for n in range(small)),
    ]


def half(rest: int) -> list[PreviousSegment]:
    """Three of four samples of 1,000 bytes are 750; the others have ``rest``."""
    return [segment("a", (4, 4, 3, 1000), (9, 9, 9, rest))]


def tenth(second: int) -> list[PreviousSegment]:
    """Segments of 1,000 bytes together: the edge of small is at 100."""
    return [*many(12, first=(787 - second, second, 100)), whole("edge", 101)]


def kept(*names: str) -> dict[str, list[int]]:
    return {name: [] for name in names}


TOUCHED = [
    segment("a", (10, 10, 9, 100), (10, 10, 10, 100), (10, 10, 0, 100), (10, 10, 10, 100)),
    whole("b", 50),
]
REMOVED = Changes(unchanged=39, removed=11)
LEFT_OUT = [segment("a", (10, 7, 7, 100), *[(10, 10, 10, 100)] * 3)]
"""Rows that the previous version omits are like removed ones."""
UNLISTED = [segment("a", (10, 0, 0, 1_000_000), (10, 10, 9, 100), (10, 10, 10, 70))]
"""A segment keeps its shards when a version lists them no longer: they do not count."""
HALF_OMITTED = [segment("a", (10, 2, 2, 100), (10, 0, 0, 100)), whole("b", 1), segment("c")]
LIVELESS = [whole("a", 100), segment("b", (10, 10, 0, 9)), segment("c"), whole("d", 100)]
NOTHING_LEFT = [segment(name, (10, 10, 0, 100)) for name in "ab"]
ROOM = [*many(14), segment("gone", (10, 10, 0, 1))]
REST_OF_16 = [segment("large", (10, 10, 9, 100), *[(10, 10, 10, 100)] * 9), *many(15, first=())]
LESS, MORE = Changes(unchanged=12, removed=1), Changes(unchanged=160, added=1)
BOTH_WAYS = Changes(unchanged=150, added=1, removed=10)
ALL, BOTH = (APPEND, OMIT, REBUILD), (APPEND, OMIT)
NAMES = [state.id for state in many(15)]
LARGE = ("large-1", "large-2")

CASES: dict[str, tuple[Sequence[PreviousSegment], Changes, Sequence[Growth], str, Any]] = {
    "the first version": ((), Changes(added=7), ALL, "fresh", {}),
    "nothing changed": (HALF_OMITTED, Changes(unchanged=22, bad=3), ALL, "keep", kept(*"abc")),
    "added": ([whole("a", 9), whole("b", 5)], MORE, BOTH, "grow", kept(*"ab")),
    "removed, packed again": (TOUCHED, REMOVED, [APPEND], "grow", {"a": [0], "b": []}),
    "removed, omitted": (TOUCHED, REMOVED, [OMIT], "grow", kept(*"ab")),
    "omitted before, packed again": (LEFT_OUT, MORE, [APPEND], "grow", {"a": [0]}),
    "omitted before, omitted": (LEFT_OUT, MORE, [OMIT], "grow", kept("a")),
    "more than half": (half(499), LESS, [APPEND], "fresh", {}),
    "half": (half(500), LESS, [APPEND], "grow", {"a": [0]}),
    "more than half, omitted": (half(499), LESS, [OMIT], "grow", kept("a")),
    "more than half of what is listed": (UNLISTED, LESS, [APPEND], "fresh", {}),
    "the same, omitted": (UNLISTED, LESS, [OMIT], "grow", kept("a")),
    "without a live sample": (LIVELESS, BOTH_WAYS, BOTH, "grow", kept(*"ad")),
    "nothing left": (NOTHING_LEFT, BOTH_WAYS, BOTH, "fresh", {}),
    "the sixteenth": (many(14), MORE, BOTH, "grow", kept(*NAMES[:15])),
    "no seventeenth": (many(15), LESS, BOTH, "grow", kept(*NAMES)),
    "room for another": (ROOM, BOTH_WAYS, BOTH, "grow", kept(*NAMES[:15])),
    "the seventeenth": (many(15), MORE, BOTH, "grow", kept("large-0")),
    "a rest that makes it 17": (REST_OF_16, LESS, [APPEND], "grow", {"large": [0]}),
    "a rest that is omitted": (REST_OF_16, LESS, [OMIT], "grow", kept("large", *NAMES[1:])),
    "a tenth is large": (tenth(100), MORE, BOTH, "grow", kept(*NAMES[:1], *LARGE, "edge")),
    "less is small": (tenth(99), MORE, BOTH, "grow", kept(*NAMES[:1], LARGE[1], "edge")),
    "all are small": ([whole(f"s{n}", 100) for n in range(16)], MORE, BOTH, "fresh", {}),
    "rebuilt": ([whole("s", 100)], MORE, [REBUILD], "fresh", {}),
}


@pytest.mark.parametrize("what", CASES)
def test_what_becomes_of_the_segments(what):
    segments, changes, growths, kind, again = CASES[what]
    for growth in growths:
        found = decide(segments, changes, growth)
        assert (found.kind, shape(found)) == (kind, again)
        left = {state.id for state in segments if state.live.any()} - again.keys()
        assert set(found.folded) == (left if kind == "grow" else set())


REASONS = {
    "the first version": "this is the first version",
    "nothing changed": "no sample has changed",
    "added": "what differs goes into a new segment",
    "removed, omitted": "samples were only removed",
    "the seventeenth": "what differs goes into a new segment, with those of 15 small segments",
    "more than half": "more than half of the bytes would be packed again",
    "nothing left": "nothing is left of the previous version",
    "all are small": "all segments are small",
    "rebuilt": "growth.mode is rebuild",
}


def test_reasons():
    for what, reason in REASONS.items():
        segments, changes, (growth, *_), *_ = CASES[what]
        assert decide(segments, changes, growth).reason == reason


@pytest.mark.parametrize("change", ["added", "changed", "relabelled", "moved", "removed"])
def test_every_change_counts(change):
    changes = Changes(unchanged=160, **{change: 1})
    assert decide([whole("s", 100)], changes, REBUILD).kind == "fresh"
    folded = decide(many(15), changes, APPEND).folded
    assert len(folded) == (0 if change == "removed" else 15)


@pytest.mark.parametrize("growth", ALL)
@pytest.mark.parametrize("changes", [Changes(unchanged=10), MORE])
def test_a_reason_for_one_segment_comes_before_all_else(growth, changes):
    found = decide([whole("s", 100)], changes, growth, fresh="shards.bytes was 1 kB")
    assert (found.kind, found.reason, shape(found)) == ("fresh", "shards.bytes was 1 kB", {})


def test_a_decision_says_what_either_policy_packs_and_omits():
    for growth in BOTH:
        found = decide(TOUCHED, REMOVED, growth)
        repack, omit = found.policy, found.other
        if growth is OMIT:
            repack, omit = omit, repack
        assert (repack.removals, repack.packed) == ("repack", Totals(9, 90))
        assert (repack.omitted, repack.shards) == (0, 2), "no row of a shard that is listed"
        assert (omit.removals, omit.packed) == ("omit", Totals())
        assert (omit.omitted, omit.shards) == (1, 1), "the shard without a sample is not listed"


shards = st.tuples(st.integers(1, 9), st.floats(0, 1), st.floats(0, 1), st.integers(1, 10_000)).map(
    lambda shard: _consistent(*shard)
)
states = st.lists(st.lists(shards, max_size=4), min_size=1, max_size=20).map(
    lambda found: [segment(f"s{place}", *own) for place, own in enumerate(found)]
)


def _consistent(rows: int, before: float, live: float, size_bytes: int) -> Shard:
    there = round(rows * before)
    return rows, there, round(there * live), size_bytes


@given(states, st.sampled_from([APPEND, OMIT]), st.integers(0, 3))
def test_whatever_it_is_a_version_stays_in_its_limits(segments, growth, added):
    before, live = (
        sum(int(getattr(state, name).sum()) for state in segments) for name in ("before", "live")
    )
    changes = Changes(unchanged=live, added=added, removed=before - live)
    found = decide(segments, changes, growth)
    if not changes.any:
        assert found.kind == "keep"
        return
    assert found.kind in ("grow", "fresh")
    assert len(found.again) + _grows(segments, found.again, added) <= MAX_SEGMENTS
    for state in segments:
        again = found.again.get(state.id)
        if again is None:
            continue
        listed = (state.live > 0) & ~again
        assert listed.any(), "a segment without a listed shard"
        if growth.removals == "repack":
            assert np.array_equal(state.live[listed], state.rows[listed]), "an omitted row"
        else:
            assert not again.any()
        assert not (again & (state.live == 0)).any(), "nothing to pack"


def _grows(segments: Sequence[PreviousSegment], again: Mapping[str, Any], added: int) -> bool:
    """Whether there is anything for a new segment."""
    packed = sum(
        int(state.live.sum() if state.id not in again else state.live[again[state.id]].sum())
        for state in segments
    )
    return bool(packed or added)


@pytest.mark.parametrize("changes", [Changes(unchanged=20), Changes(unchanged=20, added=1)])
@pytest.mark.parametrize(
    ("growth", "faulty_bytes", "kind", "again"),
    [
        (APPEND, 100, "grow", kept("sound")),
        (OMIT, 100, "grow", kept("sound")),
        (APPEND, 101, "fresh", {}),
        (OMIT, 101, "fresh", {}),
        (REBUILD, 1, "fresh", {}),
    ],
)
def test_a_fault_replaces_its_segments_alone_up_to_half(changes, growth, faulty_bytes, kind, again):
    segments = [segment("faulty", (10, 10, 10, faulty_bytes), form=0), whole("sound", 100)]
    found = decide(segments, changes, growth)
    assert (found.kind, shape(found), found.other) == (kind, again, None)
    assert found.reason == "webdataset shards before version 1 of the format have a fault"
    reason = "larder compact"
    assert decide(segments, changes, growth, fresh=reason).reason == reason
