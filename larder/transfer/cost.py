"""The cost of a copy, from list prices. Pure.

Prices in US dollars, from the list prices of AWS for most regions (2026): a transfer between two
AWS regions costs 0.02 per GB (10^9 bytes), 1,000 GETs 0.0004 and 1,000 PUTs 0.005. Within one
region, on file systems and on servers other than AWS there are no charges. The actual price depends
on the regions and on contracts: the result is an estimate, and is shown as such.
"""

from __future__ import annotations

from dataclasses import dataclass

from larder.config.models import Location

__all__ = ["Cost", "estimate_cost"]

EGRESS_USD_PER_GB = 0.02
GET_USD = 0.0004 / 1000
PUT_USD = 0.005 / 1000


@dataclass(frozen=True, slots=True)
class Cost:
    """An estimate in US dollars, and its components."""

    egress_usd: float
    requests_usd: float

    @property
    def total_usd(self) -> float:
        """The sum."""
        return self.egress_usd + self.requests_usd


def _is_aws(location: Location) -> bool:
    return location.provider == "s3" and not location.access.endpoint


def estimate_cost(
    source: Location, storage: Location, *, read_objects: int, read_bytes: int, put_objects: int
) -> Cost:
    """Estimate the cost of reading from the source and writing to the storage.

    Args:
        source: The source; if its region is not given, it counts as another region.
        storage: The storage.
        read_objects: Number of objects to read from the source.
        read_bytes: Their total size.
        put_objects: Number of objects to write to the storage.
    """
    here, there = source.access.region, storage.access.region
    crosses = _is_aws(source) and (here is None or here != there)
    egress = EGRESS_USD_PER_GB * read_bytes / 1e9 if crosses else 0.0
    requests = GET_USD * read_objects if _is_aws(source) else 0.0
    requests += PUT_USD * put_objects if _is_aws(storage) else 0.0
    return Cost(egress_usd=egress, requests_usd=requests)
