"""Costs grow with what is moved, and are never 0 where a price is not known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from larder.copy.prices import Cost, check_cost, egress_usd_per_gb, estimate_cost
from larder.copy.site import Site, distance
from larder.errors import ConfigError

REGIONS = [None, "us-east-1", "us-west-2", "sa-east-1", "us-central1", "us", "moon-base-1"]
SITES = st.builds(
    Site,
    st.sampled_from(["aws", "gcp"]),
    st.sampled_from(REGIONS),
    bucket=st.sampled_from(["a", "b"]),
    anonymous=st.booleans(),
) | st.sampled_from([Site("file"), Site("memory"), Site("server", server="host:1", bucket="a")])
NUMBERS = st.tuples(st.integers(0, 10**18), st.integers(0, 10**10), st.integers(0, 10**10))


def estimate(source: Site, target: Site, numbers: tuple[int, int, int]) -> Cost:
    size_bytes, objects, written = numbers
    return estimate_cost(source, target, size_bytes=size_bytes, objects=objects, written=written)


@given(source=SITES, target=SITES, several=st.lists(NUMBERS, min_size=1, max_size=5))
def test_costs_add_up_and_grow(
    source: Site, target: Site, several: list[tuple[int, int, int]]
) -> None:
    costs = [estimate(source, target, numbers) for numbers in several]
    sums = [tuple(map(sum, zip(*several[: end + 1], strict=True))) for end in range(len(several))]
    growing = [estimate(source, target, numbers) for numbers in sums]  # type: ignore[arg-type]
    assert (growing[-1].total_usd is None) == any(cost.total_usd is None for cost in costs)
    assert growing[-1].requests_usd == pytest.approx(sum(cost.requests_usd for cost in costs))
    known = [cost.total_usd for cost in growing if cost.total_usd is not None]
    assert known == sorted(known)
    if len(known) == len(several):
        assert known[-1] == pytest.approx(sum(cost.total_usd or 0.0 for cost in costs))


@given(source=SITES, target=SITES, size=st.integers(1, 10**15))
def test_bytes_that_cross_from_a_provider_are_never_free(
    source: Site, target: Site, size: int
) -> None:
    cost = estimate(source, target, (size, 0, 0))
    if distance(source, target) == "beside" or source.anonymous or not source.priced:
        assert cost.total_usd == 0
    else:
        assert cost.total_usd is None or cost.total_usd > 0
        per_gb = egress_usd_per_gb(source, target)
        expected = None if per_gb is None else pytest.approx(per_gb * size / 1e9)
        assert cost.egress_usd == cost.total_usd == expected


@given(site=SITES, numbers=NUMBERS)
def test_requests_of_a_provider_are_never_free(site: Site, numbers: tuple[int, int, int]) -> None:
    paid = site.priced and not site.anonymous and (numbers[1] or numbers[2])
    assert (estimate(site, site, numbers).requests_usd > 0) == bool(paid)


@given(source=SITES, target=SITES, numbers=NUMBERS, limit=st.floats(0, 1e12))
def test_a_limit_refuses_what_costs_more_or_is_not_known(
    source: Site, target: Site, numbers: tuple[int, int, int], limit: float
) -> None:
    cost = estimate(source, target, numbers)
    check_cost(cost, None, "copy")
    if cost.total_usd is not None and cost.total_usd <= limit:
        check_cost(cost, limit, "copy")
        return
    with pytest.raises(ConfigError) as caught:
        check_cost(cost, limit, "copy")
    assert caught.value.code == "config.cost_limit"
