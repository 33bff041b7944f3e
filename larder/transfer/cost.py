"""The cost of moving and storing bytes, from list prices. Pure.

What is charged depends on who owns the place:

==============================  ==================================================================
place                           charges
==============================  ==================================================================
AWS, Google Cloud               bytes that leave the region, requests, storage; unknown (None) if
                                the price list does not have the region or the pair of regions
a bucket read without signing   none for reading it: its owner pays
any other server                none are known: 0, and `Cost.not_priced` names the server
directories                     none
==============================  ==================================================================

Bytes that leave a region are charged as if whatever reads them ran where they go: Larder has to run
beside the storage. Into a directory, they are charged as if they went to the internet. A copy that
a provider makes itself costs the same egress as one that passes through this machine.

All of it is an estimate: contracts, free quotas and price changes are not known here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from larder.transfer.prices import Prices, list_prices
from larder.transfer.site import Site, distance

Kind = Literal["get", "put", "copy", "list"]

GB = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Requests:
    """Numbers of requests by kind; the parts of multipart uploads and their ends are PUTs.

    Attributes:
        get: GET and HEAD.
        put: PUT, POST and uploads of parts.
        copy: Copies that a server makes itself, or the parts of one.
        list: Pages of listings.
    """

    get: int = 0
    put: int = 0
    copy: int = 0
    list: int = 0

    def __add__(self, other: Requests) -> Requests:
        """The sum, kind by kind."""
        return Requests(
            self.get + other.get,
            self.put + other.put,
            self.copy + other.copy,
            self.list + other.list,
        )

    @property
    def writes(self) -> int:
        """Those that cost as much as a PUT (class A of Google Cloud)."""
        return self.put + self.copy + self.list


@dataclass(frozen=True, slots=True)
class Move:
    """Bytes that leave a place, and what that costs.

    Attributes:
        source: Where they are.
        target: Where they go.
        bytes: Their number.
        usd_per_gb: The price of a GB (10^9 bytes); None if it is not known.
    """

    source: str
    target: str
    bytes: int
    usd_per_gb: float | None

    @property
    def usd(self) -> float | None:
        """What it costs; None if the price is not known."""
        if not self.bytes:
            return 0.0
        return None if self.usd_per_gb is None else self.usd_per_gb * self.bytes / GB


@dataclass(frozen=True, slots=True)
class Cost:
    """An estimate in US dollars.

    Attributes:
        moves: Bytes that leave a region or a provider, by pair.
        requests: What is known of the cost of requests.
        unknown: Phrases for what has no known price; empty if everything has one.
        not_priced: Servers whose charges, if there are any, are not known; counted as 0.
    """

    moves: tuple[Move, ...] = ()
    requests: float = 0.0
    unknown: tuple[str, ...] = ()
    not_priced: tuple[str, ...] = ()

    def __add__(self, other: Cost) -> Cost:
        """Both costs together."""
        pairs: dict[tuple[str, str, float | None], int] = {}
        for move in (*self.moves, *other.moves):
            pair = move.source, move.target, move.usd_per_gb
            pairs[pair] = pairs.get(pair, 0) + move.bytes
        return Cost(
            moves=tuple(Move(*pair[:2], size, pair[2]) for pair, size in pairs.items()),
            requests=self.requests + other.requests,
            unknown=tuple(dict.fromkeys((*self.unknown, *other.unknown))),
            not_priced=tuple(dict.fromkeys((*self.not_priced, *other.not_priced))),
        )

    @property
    def known_usd(self) -> float:
        """The sum of what has a known price."""
        return self.requests + sum(move.usd or 0.0 for move in self.moves)

    @property
    def total_usd(self) -> float | None:
        """The sum; None if a part of it is not known."""
        return None if self.unknown else self.known_usd

    @property
    def egress_usd(self) -> float | None:
        """What the bytes cost that leave a place; None if a part of it is not known."""
        costs = [move.usd for move in self.moves]
        return None if None in costs else sum(cost or 0.0 for cost in costs)


def total(costs: Iterable[Cost]) -> Cost:
    """The sum of costs."""
    return sum(costs, Cost())


def egress_cost(
    source: Site, target: Site, size_bytes: int, *, prices: Prices | None = None
) -> Cost:
    """The cost of bytes that go from one place to another.

    Args:
        source: Where they are.
        target: Where they go.
        size_bytes: Their number.
        prices: The price list; by default the one that Larder comes with.
    """
    if source.anonymous or not source.priced or not size_bytes:
        servers = (source.server,) if source.server and not source.priced and size_bytes else ()
        return Cost(not_priced=servers)
    apart = distance(source, target)
    if apart == "beside":
        return Cost()
    price = None
    if apart == "away" and source.region:
        listed = prices or list_prices()
        price = listed.egress(source.provider, source.region, target.provider, target.region)
    move = Move(source.name, target.name, size_bytes, price.usd if price else None)
    return Cost((move,), unknown=() if price else (f"egress from {source.name} to {target.name}",))


def egress_usd_per_gb(source: Site, target: Site) -> float | None:
    """The price of a GB (10^9 bytes) that goes from one place to another; None if not known."""
    return egress_cost(source, target, GB).total_usd


def request_cost(site: Site, requests: Requests, *, prices: Prices | None = None) -> Cost:
    """The cost of requests at one place.

    Args:
        site: The place.
        requests: Their numbers.
        prices: The price list; by default the one that Larder comes with.
    """
    if requests == Requests() or site.anonymous or not site.priced:
        used = requests != Requests() and site.server
        return Cost(not_priced=(site.server,) if used else ())
    listed = prices or list_prices()
    usd = 0.0
    for writes, count in ((True, requests.writes), (False, requests.get)):
        if not count:
            continue
        price = listed.request(site.provider, site.region, writes=writes) if site.region else None
        if price is None:
            return Cost(unknown=(f"requests to {site.name}",))
        usd += price.usd * count / 1000
    return Cost(requests=usd)


def storage_usd_per_month(
    site: Site, size_bytes: int, *, prices: Prices | None = None
) -> float | None:
    """The cost of keeping bytes for a month in the standard storage class; None if not known.

    Args:
        site: Where they are kept.
        size_bytes: Their number.
        prices: The price list; by default the one that Larder comes with.
    """
    if not size_bytes or site.provider in ("file", "memory"):
        return 0.0
    if not site.priced or not site.region:
        return None
    price = (prices or list_prices()).storage(site.provider, site.region)
    return price.usd * size_bytes / GB if price else None
