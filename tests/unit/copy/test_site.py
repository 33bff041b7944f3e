"""Tests of larder.copy.site: whose a place is, and how far two places are apart."""

from __future__ import annotations

from typing import Any

import pytest

from larder.config.models import Location
from larder.copy.site import Site, distance


def s3(bucket: str = "bbb", **fields: Any) -> Site:
    return Site.of(Location(url=f"s3://{bucket}/x", **fields))


def gs(bucket: str = "bbb", **fields: Any) -> Site:
    return Site.of(Location(url=f"gs://{bucket}/x", **fields))


DIRECTORY = Site.of(Location(url="/data"))


@pytest.mark.parametrize(
    ("site", "provider", "name"),
    [
        (s3(region="us-east-1"), "aws", "AWS us-east-1"),
        (s3(), "aws", "AWS (region not given)"),
        (s3(endpoint="https://s3.us-west-2.amazonaws.com"), "aws", "AWS (region not given)"),
        (s3(endpoint="https://amazonaws.com.evil.example"), "server", "amazonaws.com.evil.example"),
        (s3(endpoint="http://127.0.0.1:9000", region="r"), "server", "127.0.0.1:9000 (r)"),
        (s3(endpoint="https://storage.googleapis.com", region="US"), "gcp", "Google Cloud us"),
        (gs(region="US"), "gcp", "Google Cloud us"),
        (gs(endpoint="http://127.0.0.1:4443"), "server", "127.0.0.1:4443"),
        (DIRECTORY, "file", "this machine"),
        (Site.of(Location(url="memory://x")), "memory", "this machine"),
    ],
)
def test_whose_a_place_is(site: Site, provider: str, name: str) -> None:
    assert (site.provider, site.name) == (provider, name)
    assert site.priced == (provider in ("aws", "gcp"))


OWN = {"endpoint": "http://127.0.0.1:9000"}
OTHER = {"endpoint": "http://127.0.0.1:9001"}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (s3(region="us-east-1"), s3("ccc", region="us-east-1"), "beside"),
        (s3(region="us-east-1"), s3("ccc", region="US-East-1"), "beside"),
        (s3(region="us-east-1"), s3("ccc", region="us-west-2"), "away"),
        (s3(region="us-east-1"), s3("ccc"), "unknown"),
        (s3(), s3("ccc"), "unknown"),
        (s3(), s3(), "beside"),
        (s3(region="us-east-1"), gs(region="us-east1"), "away"),
        (s3(), gs(), "away"),
        (gs(), gs("ccc"), "unknown"),
        (gs(region="US"), gs("ccc", region="us-central1"), "away"),
        (s3(**OWN), s3("ccc", **OWN), "beside"),
        (s3(**OWN, region="x"), s3("ccc", **OWN, region="y"), "away"),
        (s3(**OWN, region="x"), s3("ccc", **OWN), "beside"),
        (s3(**OWN), s3(**OTHER), "away"),
        (s3(**OWN), s3(), "away"),
        (DIRECTORY, DIRECTORY, "beside"),
        (DIRECTORY, s3(), "away"),
    ],
)
def test_distance_is_the_table_and_symmetric(one: Site, other: Site, expected: str) -> None:
    assert distance(one, other) == distance(other, one) == expected
