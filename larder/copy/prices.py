"""Estimates the cost of a copy from the bytes that cross a border, the objects and the shards.

prices.json lists prices, each with its date and its source; the first entry that fits applies. An
egress that is not listed is unknown (None), never 0. A provider's request has the highest price of
its regions where the region is not listed.

Bytes are priced as if their reader ran at the storage; into a directory, as if they went to the
internet. Directories, servers that are neither AWS nor Google Cloud, and buckets that are read
without signing cost nothing. Contracts and free quotas are not known: an estimate guards a limit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Any, Literal, NamedTuple

from larder.config.urls import partition_of
from larder.copy.site import Site, distance
from larder.errors import ConfigError
from larder.units import format_bytes

GB = 1_000_000_000


class Cost(NamedTuple):
    """An estimate in US dollars; ``usd_per_gb`` (10^9 bytes) is None if the price is not known."""

    source: Site
    target: Site
    bytes: int
    usd_per_gb: float | None
    requests_usd: float

    @property
    def egress_usd(self) -> float | None:
        if not self.bytes:
            return 0.0
        return None if self.usd_per_gb is None else self.usd_per_gb * self.bytes / GB

    @property
    def total_usd(self) -> float | None:
        return None if self.egress_usd is None else self.egress_usd + self.requests_usd


def estimate_cost(
    source: Site, target: Site, *, size_bytes: int, objects: int, written: int
) -> Cost:
    """Estimate the cost of reading objects, and of writing copies or shards elsewhere."""
    requests_usd = objects * _request_usd(source, "read") + written * _request_usd(target, "write")
    return Cost(source, target, size_bytes, egress_usd_per_gb(source, target), requests_usd)


def egress_usd_per_gb(source: Site, target: Site) -> float | None:
    """Return the price of a GB (10^9 bytes) from one place to another; None if not known."""
    apart = distance(source, target)
    if source.anonymous or not source.priced or apart == "beside":
        return 0.0
    partitions = {partition_of(site.region or "") for site in (source, target)}
    if apart == "unknown":
        return None
    if source.provider == target.provider == "aws" and len(partitions) == 2:
        return None
    to = source.provider if source.provider == target.provider else "internet"
    for entry in price_list()["egress"]:
        fits = (
            (entry["from"], entry["to"]) == (source.provider, to)
            and _matches(source.region, entry["regions"])
            and _matches(target.region, entry.get("to_regions", ["*"]))
        )
        if fits:
            return float(entry["usd_per_gb"])
    return None


def _request_usd(site: Site, kind: Literal["read", "write"]) -> float:
    if site.anonymous or not site.priced:
        return 0.0
    for entry in price_list()["requests"]:
        if entry["provider"] == site.provider and _matches(site.region, entry["regions"]):
            return float(entry[f"{kind}_usd_per_1000"]) / 1000
    raise AssertionError("the last entry of a provider is for all regions")


@cache
def price_list() -> Mapping[str, Any]:
    file = resources.files("larder.copy") / "prices.json"
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return document


def _matches(region: str | None, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(region or "", pattern) for pattern in patterns)


def check_cost(cost: Cost, limit_usd: float | None, where: str) -> None:
    """Refuse a cost above a limit, or an unknown cost if there is a limit."""
    if limit_usd is None:
        return
    size, usd = format_bytes(cost.bytes), cost.total_usd
    if usd is None:
        message = f"the cost of {size} is not known: no list price for egress from {_route(cost)}"
        hint = "give both locations their region, or set copy.max_cost_usd: null"
        raise ConfigError("config.cost_limit", message, where=where, hint=hint)
    if usd > limit_usd:
        message = f"an estimated {usd:,.2f} USD for {size}; the limit is {limit_usd:,.2f} USD"
        hint = "raise max_cost_usd, or select less with source.include"
        raise ConfigError("config.cost_limit", message, where=where, hint=hint)


def cost_document(cost: Cost) -> dict[str, Any]:
    """The field ``cost`` of the JSON document of a plan."""
    return {
        "total_usd": None if cost.total_usd is None else round(cost.total_usd, 4),
        "egress_usd": None if cost.egress_usd is None else round(cost.egress_usd, 4),
        "requests_usd": round(cost.requests_usd, 4),
        "route": _route(cost),
        "bytes": cost.bytes,
        "usd_per_gb": cost.usd_per_gb,
        "not_priced": [site.server for site in (cost.source, cost.target) if site.server],
    }


def _route(cost: Cost) -> str:
    return f"{cost.source.name} to {cost.target.name}"


def cost_lines(document: Mapping[str, Any]) -> list[str]:
    """The field ``cost`` for people."""
    usd, per_gb = document["total_usd"], document["usd_per_gb"]
    egress = f"egress from {document['route']}"
    lines = [f"unknown: there is no list price for {egress}"]
    if usd is not None:
        lines = [f"{usd:,.2f} USD, estimated from list prices"]
        if per_gb and document["bytes"]:
            lines.append(
                f"{egress}: {document['egress_usd']:,.2f} USD for"
                f" {format_bytes(document['bytes'])}, at {per_gb:g} USD per GB"
            )
    return [*lines, *(f"{server} is not priced" for server in document["not_priced"])]
