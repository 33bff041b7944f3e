"""What a copy costs, from list prices. Pure.

Prices in US dollars, as AWS lists them for most regions (2026): a transfer between two AWS
regions 0.02 per GB (10^9 bytes), a GET 0.0004 and a PUT 0.005 per 1,000. Within one region, on
file systems and on servers that are not AWS's own nothing is charged. The true price depends on
the regions and on contracts: it is an estimate, and says so where it is shown.
"""

from __future__ import annotations

from dataclasses import dataclass

from larder.config.models import Location
from larder.config.urls import parse_url

__all__ = ["Cost", "estimate_cost"]

EGRESS_USD_PER_GB = 0.02
GET_USD = 0.0004 / 1000
PUT_USD = 0.005 / 1000


@dataclass(frozen=True, slots=True)
class Cost:
    """An estimate in US dollars, and what it is made of."""

    egress_usd: float
    requests_usd: float

    @property
    def total_usd(self) -> float:
        """All of it."""
        return self.egress_usd + self.requests_usd


def _is_aws(location: Location) -> bool:
    return parse_url(location.url).scheme == "s3" and not location.endpoint


def estimate_cost(
    source: Location, storage: Location, *, read_objects: int, read_bytes: int, put_objects: int
) -> Cost:
    """Price reading from the source and writing at the storage.

    Args:
        source: Where bytes come from; a region that is not given counts as another region.
        storage: Where they go.
        read_objects: Objects to read at the source.
        read_bytes: Their bytes, in all.
        put_objects: Objects to write at the storage.
    """
    crosses = _is_aws(source) and (source.region is None or source.region != storage.region)
    egress = EGRESS_USD_PER_GB * read_bytes / 1e9 if crosses else 0.0
    requests = GET_USD * read_objects if _is_aws(source) else 0.0
    requests += PUT_USD * put_objects if _is_aws(storage) else 0.0
    return Cost(egress_usd=egress, requests_usd=requests)
