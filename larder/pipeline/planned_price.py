"""What a plan says about the mirror, archived objects and the cost, in JSON and for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from larder.transfer.archived import reading_of
from larder.transfer.prices import cost_document
from larder.units import format_bytes, format_count

if TYPE_CHECKING:
    from larder.pipeline.plan import Plan

_READINGS = {
    "refused": ", which cannot be read before they are restored",
    "perhaps": ", some of which may be in an archive tier",
    "charged": ", for which reading is charged",
}


def priced_document(plan: Plan) -> dict[str, Any]:
    """The fields ``mirror``, ``engine``, ``archived`` and ``cost`` of the document of a plan."""
    return {
        "mirror": {"wanted": plan.mirror.wanted, "reason": plan.mirror.reason},
        "engine": asdict(plan.engine) if plan.engine else None,
        "archived": _archived(plan),
        "cost": cost_document(plan.cost),
    }


def _archived(plan: Plan) -> dict[str, Any]:
    classes = plan.source_state.inventory.classes
    return {
        "to_restore": plan.archived.count,
        "classes": [
            {"name": name, "count": count, "bytes": size_bytes, "reading": reading_of(name)}
            for name, (count, size_bytes) in classes.items()
        ],
    }


def mirror_lines(document: Mapping[str, Any]) -> list[str]:
    """The mirror, for people: whether, why, and by what."""
    mirror, engine = document["mirror"], document["engine"]
    if not mirror["wanted"]:
        return [f"none, because {mirror['reason']}"]
    lines = [f"{_amount(document['copied'])} to copy, because {mirror['reason']}"]
    if engine:
        lines.append(f"with the {engine['engine']} engine: {engine['reason']}")
    return lines


def _amount(copied: Mapping[str, int]) -> str:
    return f"{format_count(copied['count'], 'object')}, {format_bytes(copied['bytes'])}"


def archived_lines(document: Mapping[str, Any]) -> list[str]:
    """Objects that are not in the standard storage class, for people; nothing if there are none."""
    archived = document["archived"]
    lines = [
        f"{_amount(found)} in {found['name']}{_READINGS[found['reading']]}"
        for found in archived["classes"]
        if found["reading"] != "free"
    ]
    if archived["to_restore"]:
        count = format_count(archived["to_restore"], "object")
        lines.append(f"a run needs {count} of them restored first")
    return lines
