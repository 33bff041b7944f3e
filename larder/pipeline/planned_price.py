"""What a plan says about the mirror, the requests and the cost, in JSON and for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from larder.transfer.archived import reading_of
from larder.transfer.cost import Cost
from larder.units import format_bytes, format_count

if TYPE_CHECKING:
    from larder.pipeline.plan import Plan

_KINDS = {"get": "GET", "put": "PUT", "copy": "COPY", "list": "LIST"}

_READINGS = {
    "refused": ", which cannot be read before they are restored",
    "perhaps": ", some of which may be in an archive tier",
    "charged": ", for which reading is charged",
}

_SHOWN = 3


def priced_document(plan: Plan) -> dict[str, Any]:
    """The fields ``mirror``, ``requests`` and ``cost`` of the JSON document of a plan."""
    priced = plan.priced
    return {
        "mirror": {
            "wanted": plan.mirror.wanted,
            "reason": plan.mirror.reason,
            "server_side": priced.server_side and bool(plan.copies),
            "month_usd": _rounded(priced.month_usd),
        },
        "engine": asdict(plan.engine) if plan.engine else None,
        "archived": _archived(plan),
        "requests": asdict(priced.requests),
        "cost": cost_document(priced.cost),
    }


def cost_document(cost: Cost) -> dict[str, Any]:
    """The field ``cost`` of the JSON document of a plan."""
    return {
        "total_usd": _rounded(cost.total_usd),
        "known_usd": _rounded(cost.known_usd),
        "egress_usd": _rounded(cost.egress_usd),
        "requests_usd": None if _requests_unknown(cost) else round(cost.requests, 4),
        "egress": [_egress(cost, place) for place in range(len(cost.moves))],
        "unknown": list(cost.unknown),
        "not_priced": list(cost.not_priced),
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


def _requests_unknown(cost: Cost) -> bool:
    return any(each.startswith("requests") for each in cost.unknown)


def _egress(cost: Cost, place: int) -> dict[str, Any]:
    move = cost.moves[place]
    return {
        "from": move.source,
        "to": move.target,
        "bytes": move.bytes,
        "usd_per_gb": move.usd_per_gb,
        "usd": _rounded(move.usd),
    }


def _rounded(usd: float | None) -> float | None:
    return None if usd is None else round(usd, 4)


def mirror_lines(document: Mapping[str, Any]) -> list[str]:
    """The mirror, for people: whether, why, by what, and what it costs a month."""
    mirror, engine = document["mirror"], document["engine"]
    if not mirror["wanted"]:
        return [f"none, because {mirror['reason']}"]
    how = ", by the provider's servers" if mirror["server_side"] else ""
    lines = [f"{_amount(document['copied'])} to copy{how}, because {mirror['reason']}"]
    if engine:
        lines.append(f"with the {engine['engine']} engine: {engine['reason']}")
    usd = mirror["month_usd"]
    if usd is None:
        lines.append("what keeping it costs is not known")
    elif usd:
        lines.append(f"keeping it costs {usd:,.2f} USD a month")
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


def request_lines(document: Mapping[str, Any]) -> list[str]:
    """The numbers of requests by kind, for people; nothing between directories."""
    counts = document["requests"]
    found = [f"{counts[kind]:,} {name}" for kind, name in _KINDS.items() if counts[kind]]
    return [", ".join(found)] if found else []


def cost_lines(cost: Mapping[str, Any]) -> list[str]:
    """The cost for people: the total, the egress by pair, and what is not known."""
    return [_total(cost), *map(_egress_line, cost["egress"]), *_not_priced(cost)]


def _total(cost: Mapping[str, Any]) -> str:
    if cost["total_usd"] is not None:
        return f"{cost['total_usd']:,.2f} USD, estimated from list prices"
    unknown = cost["unknown"]
    more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
    least = f"at least {cost['known_usd']:,.2f} USD" if cost["known_usd"] else "unknown"
    return f"{least}: there is no list price for {' and for '.join(unknown[:_SHOWN])}{more}"


def _egress_line(move: Mapping[str, Any]) -> str:
    if move["usd"] is None:
        return f"egress from {move['from']} to {move['to']}: {format_bytes(move['bytes'])}, unknown"
    return (
        f"egress from {move['from']} to {move['to']}: {move['usd']:,.2f} USD for"
        f" {format_bytes(move['bytes'])}, at {move['usd_per_gb']:g} USD per GB"
    )


def _not_priced(cost: Mapping[str, Any]) -> list[str]:
    return [f"{server} is not priced" for server in cost["not_priced"]]
