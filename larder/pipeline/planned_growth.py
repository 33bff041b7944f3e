"""What a plan says about the previous version: what differs, and what becomes of its segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from larder.pipeline.decide import Policy
from larder.pipeline.plan import Plan
from larder.pipeline.results import Totals
from larder.units import format_bytes, format_count

_CHANGES = ("added", "changed", "relabelled", "moved", "removed", "unchanged")


def growth_document(plan: Plan) -> dict[str, Any]:
    """The field ``growth`` of the JSON document of a plan."""
    growth, previous = plan.growth, plan.source_state.previous
    kept = [segment.id for segment in growth.kept]
    before = {use.id: use for use in previous.segments} if previous else {}
    omitted_before = sum(
        rows.count for segment in kept for rows in before[segment].omitted.values()
    )
    listed_before = sum(split.shards for split in previous.splits.values()) if previous else 0
    listed = sum(facts.shards for segment in growth.kept for facts in segment.listed.values())
    new = plan.new
    policy = growth.decision.policy
    return {
        "previous": previous.id if previous else None,
        "decision": growth.decision.kind,
        "reason": growth.decision.reason,
        "samples": asdict(growth.changes),
        "omitted": sum(rows.count for rows in growth.omitted.values()) - omitted_before,
        "unlisted": listed_before - listed,
        "folded": len(growth.decision.folded),
        "new_shards": {
            **asdict(new.shards if new else Totals()),
            "samples": new.samples if new else 0,
        },
        "read": asdict(growth.selected.read),
        "packed": asdict(growth.selected.packed),
        "caches": asdict(plan.caches),
        "removals": policy.removals if policy else None,
        "other": _other(growth.decision.other) if growth.decision.other else None,
    }


def _other(policy: Policy) -> dict[str, Any]:
    return {
        "removals": policy.removals,
        "packed": asdict(policy.packed),
        "omitted": policy.omitted,
        "unlisted": policy.shards,
    }


def growth_lines(document: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Rows for people: a name, and its strings; nothing for a first version.

    Args:
        document: The JSON document of a plan.
    """
    growth = document["growth"]
    if growth["previous"] is None:
        return
    yield "changes", [changes(growth)]
    yield "segments", [_segments(document), f"because: {growth['reason']}"]
    yield "packing", [_packing(growth), *_instead(growth)]


def changes(growth: Mapping[str, Any]) -> str:
    """``2 added, 10 unchanged, since version ID``, of the field ``growth`` of a document."""
    counts = growth["samples"]
    differing = [f"{counts[name]:,} {name}" for name in _CHANGES if counts[name]]
    return f"{', '.join(differing)}, since version {growth['previous']}"


def _segments(document: Mapping[str, Any]) -> str:
    growth, segments = document["growth"], document["segments"]
    text = f"{segments['total']:,}, {segments['new']:,} of them new"
    if growth["omitted"]:
        text += f"; {format_count(growth['omitted'], 'row')} omitted"
    if growth["unlisted"]:
        text += f"; {format_count(growth['unlisted'], 'shard')} listed no longer"
    return text


def _packing(growth: Mapping[str, Any]) -> str:
    new, read, packed, caches = (
        growth[name] for name in ("new_shards", "read", "packed", "caches")
    )
    if not new["count"] and not caches["count"]:
        return "nothing"
    text = f"{format_count(new['count'], 'new shard')}, {format_bytes(new['bytes'])}"
    text += f": {format_count(read['count'], 'object')}, {format_bytes(read['bytes'])}"
    if packed["count"]:
        samples = format_count(packed["count"], "sample")
        text += f", and {samples}, {format_bytes(packed['bytes'])}, from shards"
    if caches["count"]:
        text += f"; {format_count(caches['count'], 'cache file')}"
        text += f" from {format_bytes(caches['bytes'])} of shards"
    return text


def _instead(growth: Mapping[str, Any]) -> Iterator[str]:
    other = growth["other"]
    if not other or not growth["samples"]["unchanged"]:
        return
    packed, what = other["packed"], []
    if packed["count"]:
        samples = format_count(packed["count"], "sample")
        what.append(f"{samples} (about {format_bytes(packed['bytes'])}) would be packed again")
    if other["omitted"]:
        what.append(f"{format_count(other['omitted'], 'row')} of listed shards would be omitted")
    if what:
        yield f"with growth.removals: {other['removals']}, {' and '.join(what)}"
