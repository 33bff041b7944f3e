"""Costs grow with what is moved, add up, and are never 0 where a price is not known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from larder.transfer.cost import (
    Cost,
    Requests,
    egress_cost,
    egress_usd_per_gb,
    request_cost,
    storage_usd_per_month,
    total,
)
from larder.transfer.site import Site, distance

REGIONS = [None, "us-east-1", "us-west-2", "sa-east-1", "us-central1", "us", "moon-base-1"]
SITES = st.builds(
    Site,
    st.sampled_from(["aws", "gcp"]),
    st.sampled_from(REGIONS),
    bucket=st.sampled_from(["a", "b"]),
    anonymous=st.booleans(),
) | st.sampled_from([Site("file"), Site("memory"), Site("server", server="host:1", bucket="a")])
SIZES = st.integers(0, 10**18)
COUNTS = st.integers(0, 10**10)
REQUESTS = st.builds(Requests, COUNTS, COUNTS, COUNTS, COUNTS)


def same(one: Cost, other: Cost) -> None:
    """The same estimate, whatever it was put together from."""
    assert one.unknown == other.unknown
    assert one.not_priced == other.not_priced
    assert one.known_usd == pytest.approx(other.known_usd)
    assert (one.total_usd is None) == (other.total_usd is None)


@given(source=SITES, target=SITES, sizes=st.lists(SIZES, min_size=1, max_size=5))
def test_egress_adds_up_and_grows(source: Site, target: Site, sizes: list[int]) -> None:
    costs = [egress_cost(source, target, size) for size in sizes]
    same(total(costs), egress_cost(source, target, sum(sizes)))
    growing = [egress_cost(source, target, size).known_usd for size in sorted(sizes)]
    assert growing == sorted(growing)
    assert all(usd >= 0 for usd in growing)


@given(site=SITES, several=st.lists(REQUESTS, min_size=1, max_size=5))
def test_requests_add_up_and_grow(site: Site, several: list[Requests]) -> None:
    costs = [request_cost(site, requests) for requests in several]
    same(total(costs), request_cost(site, sum(several, Requests())))
    more = [request_cost(site, sum(several[: count + 1], Requests())) for count in range(5)]
    growing = [cost.known_usd for cost in more]
    assert growing == sorted(growing)


@given(source=SITES, target=SITES, size=st.integers(1, 10**15))
def test_bytes_that_cross_from_a_provider_are_never_free(
    source: Site, target: Site, size: int
) -> None:
    cost = egress_cost(source, target, size)
    if distance(source, target) == "beside" or source.anonymous or not source.priced:
        assert cost.total_usd == 0
    else:
        assert cost.total_usd is None or cost.total_usd > 0
        per_gb = egress_usd_per_gb(source, target)
        assert per_gb is None or per_gb * size / 1e9 == pytest.approx(cost.total_usd)
        assert cost.egress_usd is None or cost.egress_usd == cost.total_usd


@given(one=st.tuples(SITES, SITES, SIZES), other=st.tuples(SITES, REQUESTS))
def test_what_is_unknown_stays_unknown(
    one: tuple[Site, Site, int], other: tuple[Site, Requests]
) -> None:
    costs = egress_cost(*one), request_cost(*other)
    both = total(costs)
    assert (both.total_usd is None) == any(cost.total_usd is None for cost in costs)
    assert set(both.unknown) == {each for cost in costs for each in cost.unknown}


@given(site=SITES, sizes=st.tuples(SIZES, SIZES))
def test_storage_adds_up(site: Site, sizes: tuple[int, int]) -> None:
    one, other, both = (storage_usd_per_month(site, size) for size in (*sizes, sum(sizes)))
    if both is not None:
        assert one is not None
        assert other is not None
        assert one + other == pytest.approx(both)
