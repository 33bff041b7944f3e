"""What becomes of the segments of a version: every row of the table, and both sides of borders."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from larder.config.models.dataset import Growth
from larder.growth.compare import Changes
from larder.growth.decision import MAX_SEGMENTS, Decision, SegmentState, decide
from larder.jobs.results import Totals

APPEND = Growth()
OMIT = Growth(removals="omit")
REBUILD = Growth(mode="rebuild")

Shard = tuple[int, int, int, int]
"""Of a shard: rows, rows before, rows that are live, and bytes."""


def segment(name: str, *shards: Shard) -> SegmentState:
    columns = np.array(shards, np.int64).reshape(-1, 4).T
    return SegmentState(name, *columns)


def whole(name: str, *sizes: int) -> SegmentState:
    """Shards of ten samples each, none of which has changed."""
    return segment(name, *((10, 10, 10, size) for size in sizes))


def shape(decision: Decision) -> dict[str, list[int]]:
    """The segments that are kept, with the shards that are packed again."""
    return {name: np.flatnonzero(flags).tolist() for name, flags in decision.again.items()}


@pytest.mark.parametrize("growth", [APPEND, OMIT, REBUILD])
def test_the_first_version_is_one_segment(growth):
    found = decide((), Changes(added=7), growth)
    assert (found.kind, found.reason, shape(found)) == ("fresh", "this is the first version", {})
    assert (found.policy, found.other) == (None, None)


@pytest.mark.parametrize("growth", [APPEND, OMIT, REBUILD])
@pytest.mark.parametrize("changes", [Changes(unchanged=10), Changes(unchanged=9, added=1)])
def test_a_reason_for_one_segment_comes_before_all_else(growth, changes):
    found = decide([whole("s", 100)], changes, growth, fresh="shards.bytes was 1 kB")
    assert (found.kind, found.reason, shape(found)) == ("fresh", "shards.bytes was 1 kB", {})


@pytest.mark.parametrize("growth", [APPEND, OMIT, REBUILD])
def test_nothing_changed(growth):
    """Whatever the segments are: half omitted before, too many, or small."""
    segments = [segment("a", (10, 2, 2, 100), (10, 0, 0, 100)), whole("b", 1, 2), segment("c")]
    found = decide(segments, Changes(unchanged=22, bad=3), growth)
    assert (found.kind, found.reason) == ("keep", "no sample has changed")
    assert shape(found) == {"a": [], "b": [], "c": []}
    assert found.folded == ()


@pytest.mark.parametrize(
    "changes", [{"added": 1}, {"changed": 1}, {"relabelled": 1}, {"moved": 1}, {"removed": 1}]
)
def test_a_rebuild_packs_all_whatever_changed(changes):
    found = decide([whole("s", 100)], Changes(unchanged=9, **changes), REBUILD)
    assert (found.kind, found.reason) == ("fresh", "growth.mode is rebuild")


def test_samples_are_added_to_a_new_segment():
    found = decide([whole("a", 100, 100), whole("b", 5)], Changes(unchanged=30, added=1200), APPEND)
    assert (found.kind, found.reason) == ("grow", "what differs goes into a new segment")
    assert shape(found) == {"a": [], "b": []}
    assert found.policy.packed == found.other.packed == Totals()  # type: ignore[union-attr]


TOUCHED = [
    segment("a", (10, 10, 9, 100), (10, 10, 10, 100), (10, 10, 0, 100), (10, 10, 10, 100)),
    whole("b", 50),
]


def test_repack_packs_the_rest_of_touched_shards():
    found = decide(TOUCHED, Changes(unchanged=39, removed=11), APPEND)
    assert (found.kind, shape(found)) == ("grow", {"a": [0], "b": []})
    policy, other = found.policy, found.other
    assert (policy.removals, policy.packed) == ("repack", Totals(9, 90))
    assert (policy.omitted, policy.shards) == (0, 2), "no row of a shard that is listed"
    assert (other.removals, other.packed) == ("omit", Totals())
    assert (other.omitted, other.shards) == (1, 1), "the shard without a sample is not listed"


def test_omit_packs_nothing():
    found = decide(TOUCHED, Changes(unchanged=39, removed=11), OMIT)
    assert (found.kind, shape(found)) == ("grow", {"a": [], "b": []})
    assert (found.policy.removals, found.policy.omitted) == ("omit", 1)
    assert (found.other.removals, found.other.packed) == ("repack", Totals(9, 90))


def test_repack_takes_over_what_omit_left():
    """Rows that the previous version omits are like removed ones: the policy has changed."""
    before = segment("a", (10, 7, 7, 100), *[(10, 10, 10, 100)] * 3)
    found = decide([before], Changes(unchanged=37, added=1), APPEND)
    assert shape(found) == {"a": [0]}
    assert shape(decide([before], Changes(unchanged=37, added=1), OMIT)) == {"a": []}


@pytest.mark.parametrize(("rest", "kind"), [(499, "fresh"), (500, "grow"), (501, "grow")])
def test_more_than_half_is_packed_again_as_a_whole(rest, kind):
    """Three of four samples of 1,000 bytes are 750; exactly half is not more."""
    segments = [segment("a", (4, 4, 3, 1000), (9, 9, 9, rest))]
    changes = Changes(unchanged=12, removed=1)
    found = decide(segments, changes, APPEND)
    assert found.kind == kind
    assert found.policy.packed == Totals(3, 750)
    if kind == "fresh":
        assert found.reason == "more than half of the bytes would be packed again"
    assert decide(segments, changes, OMIT).kind == "grow"


def test_shards_that_were_not_listed_do_not_count_for_the_half():
    """A segment keeps its shards when a version lists them no longer."""
    gone: Shard = (10, 0, 0, 1_000_000)
    segments = [segment("a", gone, (10, 10, 9, 100), (10, 10, 10, 70))]
    assert decide(segments, Changes(unchanged=19, removed=1), APPEND).kind == "fresh"
    assert decide(segments, Changes(unchanged=19, removed=1), OMIT).kind == "grow"


def test_a_segment_without_a_live_sample_is_dropped():
    segments = [whole("a", 100), segment("b", (10, 10, 0, 9)), segment("c"), whole("d", 100)]
    for growth in (APPEND, OMIT):
        found = decide(segments, Changes(unchanged=20, removed=10), growth)
        assert shape(found) == {"a": [], "d": []}
        assert found.folded == ()


@pytest.mark.parametrize("growth", [APPEND, OMIT])
def test_nothing_is_left(growth):
    segments = [segment("a", (10, 10, 0, 100)), segment("b", (10, 10, 0, 100))]
    found = decide(segments, Changes(added=20, removed=20), growth)
    assert (found.kind, found.reason) == ("fresh", "nothing is left of the previous version")


def many(small: int, *, first: Sequence[int] = (1000,)) -> list[SegmentState]:
    return [
        *(whole(f"large-{n}", size) for n, size in enumerate(first)),
        *(whole(f"small-{n}", 1) for n in range(small)),
    ]


ONE_MORE: dict[str, Any] = {"added": 1}


def test_sixteen_segments_are_left_alone():
    found = decide(many(14), Changes(unchanged=150, **ONE_MORE), APPEND)
    assert (len(found.again), found.folded) == (15, ())
    found = decide(many(15), Changes(unchanged=160, removed=1), OMIT)
    assert (len(found.again), found.folded) == (16, ()), "there is no new one"


@pytest.mark.parametrize("changes", [{"added": 1}, {"changed": 1}, {"relabelled": 1}, {"moved": 1}])
@pytest.mark.parametrize("growth", [APPEND, OMIT])
def test_the_seventeenth_segment_takes_the_small_ones(growth, changes):
    segments = many(15)
    assert len(segments) == MAX_SEGMENTS
    found = decide(segments, Changes(unchanged=160, **changes), growth)
    assert (found.kind, shape(found)) == ("grow", {"large-0": []})
    assert found.folded == tuple(f"small-{n}" for n in range(15))
    reason = "what differs goes into a new segment, with those of 15 small segments"
    assert found.reason == reason


def test_a_touched_shard_makes_a_new_segment_too():
    """A removal alone adds a segment if the rest of the shard is packed again."""
    segments = [segment("large", (10, 10, 9, 100), *[(10, 10, 10, 100)] * 9), *many(15, first=())]
    changes = Changes(unchanged=249, removed=1)
    assert shape(decide(segments, changes, APPEND)) == {"large": [0]}
    assert len(decide(segments, changes, OMIT).again) == 16


def test_a_segment_that_goes_makes_room():
    segments = [*many(14), segment("gone", (10, 10, 0, 1))]
    changes = Changes(unchanged=150, added=1, removed=10)
    for growth in (APPEND, OMIT):
        found = decide(segments, changes, growth)
        assert (len(found.again), found.folded) == (15, ())


def test_small_is_less_than_a_tenth():
    """Of the bytes that would be left of the version: here 1000."""
    segments = many(13, first=(687, 100, 100))
    segments[-1] = whole("edge", 101)
    assert sum(int(state.bytes.sum()) for state in segments) == 1000
    found = decide(segments, Changes(unchanged=160, added=1), APPEND)
    assert shape(found) == {"large-0": [], "large-1": [], "large-2": [], "edge": []}
    segments[1] = whole("large-1", 99)
    segments[0] = whole("large-0", 688)
    assert shape(decide(segments, Changes(unchanged=160, added=1), APPEND)) == {
        "large-0": [],
        "large-2": [],
        "edge": [],
    }


def test_segments_that_are_all_small_become_one():
    segments = [whole(f"s{n}", 100) for n in range(16)]
    found = decide(segments, Changes(unchanged=160, added=1), APPEND)
    assert (found.kind, found.reason, shape(found)) == ("fresh", "all segments are small", {})


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


def _grows(segments: Sequence[SegmentState], again: Mapping[str, Any], added: int) -> bool:
    """Whether there is anything for a new segment."""
    packed = sum(
        int(state.live.sum() if state.id not in again else state.live[again[state.id]].sum())
        for state in segments
    )
    return bool(packed or added)
