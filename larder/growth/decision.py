"""Decides how the segments of a version follow from the previous version. Pure.

The first rule that applies counts:

=========================================  ==================================================
there is no previous version               fresh: all samples go into one segment
a compaction, or shape options changed     fresh, unless it is one whole segment already
nothing changed, and no shard has a fault  keep all segments
``growth.mode: rebuild``                   fresh
more than half would be packed again       fresh
else                                       grow: a new segment with new or changed samples
=========================================  ==================================================

When a version would have more than 16 segments, the small segments are packed into the new one.
Segments with a fault in the form of their shards always are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from larder.config.models.dataset import Growth
from larder.growth.compare import Changes
from larder.growth.previous import PreviousSegment
from larder.jobs.results import Totals

MAX_SEGMENTS = 16
"""Maximum number of segments of a version."""

SMALL = 10
"""A segment is small if it has less than a tenth of the bytes of its version."""

_OTHER = {"repack": "omit", "omit": "repack"}

_Flags = npt.NDArray[np.bool_]


class RemovalPolicy(NamedTuple):
    """The effects of a policy for removals (``repack`` or ``omit``).

    ``packed`` counts samples that are packed again because of their shards. ``omitted`` counts the
    omitted rows of listed shards, and ``shards`` the shards that are no longer listed.
    """

    removals: str
    packed: Totals
    omitted: int
    shards: int


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """A decision; ``reason`` is one sentence for the user.

    ``again`` flags, for each kept segment, the shards whose samples are packed again. ``folded``
    are the small segments that are packed again as a whole. ``policy`` has the effects of the
    configured policy, if it matters, and ``other`` the effects of the other policy.
    """

    kind: Literal["fresh", "grow", "keep"]
    reason: str
    again: Mapping[str, _Flags]
    folded: tuple[str, ...] = ()
    policy: RemovalPolicy | None = None
    other: RemovalPolicy | None = None


def decide(
    segments: Sequence[PreviousSegment],
    changes: Changes,
    growth: Growth,
    *,
    fresh: str | None = None,
) -> Decision:
    """Decide which segments of the previous version to keep; none without a previous version.

    ``fresh`` is the reason why all samples have to go into one new segment, if there is one.
    """
    if fresh is not None or not segments:
        return Decision("fresh", fresh or "this is the first version", {})
    fault = next((state.fault for state in segments if state.fault), "")
    if not changes.any and not fault:
        nothing = {state.id: np.zeros(len(state.rows), np.bool_) for state in segments}
        return Decision("keep", "no sample has changed", nothing)
    if growth.mode == "rebuild":
        return Decision("fresh", fault or "growth.mode is rebuild", {})
    policy = _policy(segments, growth.removals)
    other = None if fault else _policy(segments, _OTHER[growth.removals])
    listed = sum(int(state.bytes[state.before > 0].sum()) for state in segments)
    if 2 * policy.packed.bytes > listed:
        reason = fault or "more than half of the bytes would be packed again"
        return Decision("fresh", reason, {}, policy=policy, other=other)
    again = {state.id: _again(state, growth.removals) for state in segments}
    folded = _folded(segments, again, changes)
    kept = {
        state.id: again[state.id]
        for state in segments
        if state.id not in folded and np.any((state.live > 0) & ~again[state.id])
    }
    if not kept:
        reason = "all segments are small" if folded else "nothing is left of the previous version"
        return Decision("fresh", reason, {}, policy=policy, other=other)
    reason = fault or _reason(changes, folded)
    return Decision("grow", reason, kept, folded, policy, other)


def _again(state: PreviousSegment, removals: str) -> _Flags:
    """Return which shards have their remaining samples packed again."""
    live: _Flags = state.live > 0
    if state.fault:
        return live
    return live & (state.live < state.rows) & (removals == "repack")


def _policy(segments: Sequence[PreviousSegment], removals: str) -> RemovalPolicy:
    samples = size_bytes = omitted = shards = 0
    for state in segments:
        again = _again(state, removals)
        samples += int(state.live[again].sum())
        size_bytes += int((state.bytes * state.live // np.maximum(state.rows, 1))[again].sum())
        listed = (state.live > 0) & ~again
        omitted += int((state.rows - state.live)[listed].sum())
        shards += int(((state.before > 0) & ~listed).sum())
    return RemovalPolicy(removals, Totals(samples, size_bytes), omitted, shards)


def _folded(
    segments: Sequence[PreviousSegment], again: Mapping[str, _Flags], changes: Changes
) -> tuple[str, ...]:
    """Return the small segments, if the version would have too many segments."""
    sizes = {
        state.id: int(state.bytes[(state.live > 0) & ~again[state.id]].sum()) for state in segments
    }
    left = [segment for segment, size_bytes in sizes.items() if size_bytes]
    new = changes.added or changes.changed or changes.relabelled or changes.moved
    grows = bool(new) or any(flags.any() for flags in again.values())
    if len(left) + grows <= MAX_SEGMENTS:
        return ()
    total = sum(sizes.values())
    return tuple(segment for segment in left if SMALL * sizes[segment] < total)


def _reason(changes: Changes, folded: Sequence[str]) -> str:
    reason = "what differs goes into a new segment"
    if not (changes.added or changes.changed or changes.relabelled or changes.moved):
        reason = "samples were only removed"
    if folded:
        reason += f", with those of {len(folded)} small segments"
    return reason
