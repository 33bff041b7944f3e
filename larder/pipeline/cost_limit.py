"""Refuses what costs more than the user allows."""

from __future__ import annotations

from larder.errors import ConfigError
from larder.transfer.cost import Cost
from larder.units import format_bytes


def check_cost(cost: Cost, limit: float | None, size_bytes: int, where: str) -> None:
    """Refuse what costs more than a limit, or cannot be priced although there is one.

    Args:
        cost: The estimate.
        limit: In US dollars; None for no limit.
        size_bytes: How much is read.
        where: Names the section with the limit in the error.

    Raises:
        ConfigError: ``config.cost_limit``.
    """
    if limit is None:
        return
    size = format_bytes(size_bytes)
    usd = cost.total_usd
    if usd is None and cost.known_usd <= limit:
        message = f"the cost of {size} is not known: no list price for {cost.unknown[0]}"
        hint = "give both locations their region, or set copy.max_cost_usd: null"
        raise ConfigError("config.cost_limit", message, where=where, hint=hint)
    if usd is None or usd > limit:
        least = "" if usd is not None else " at least"
        message = (
            f"an estimated{least} {cost.known_usd:,.2f} USD for {size}; the limit is {limit:,.2f}"
            " USD"
        )
        hint = "raise max_cost_usd, or select less with source.include"
        raise ConfigError("config.cost_limit", message, where=where, hint=hint)
