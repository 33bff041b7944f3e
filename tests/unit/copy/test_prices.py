import re
from typing import Any

import pytest

from larder.config.models.locations import Location
from larder.copy.prices import egress_usd_per_gb, estimate_cost, price_list
from larder.copy.site import Site, choose_mirror, distance

TABLES = {"egress": {"usd_per_gb"}, "requests": {"write_usd_per_1000", "read_usd_per_1000"}}
EAST, WEST = Site("aws", "us-east-1", bucket="a"), Site("aws", "us-west-2", bucket="b")


@pytest.mark.parametrize("table", TABLES)
def test_every_price_has_a_date_and_a_source(table):
    entries = price_list()[table]
    assert entries
    for entry in entries:
        assert re.fullmatch(r"20\d\d(-(0[1-9]|1[0-2]))?", entry["date"])
        assert price_list()["sources"][entry["source"]]
        assert entry["regions"]
        assert all(0 < entry[field] < 1 for field in TABLES[table])


@pytest.mark.parametrize(
    ("pair", "usd"),
    [
        (("aws", "us-east-1", "aws", "us-west-2"), 0.02),
        (("aws", "us-east-1", "aws", "us-east-2"), 0.01),
        (("aws", "us-west-2", "gcp", "us-central1"), 0.09),
        (("aws", "ap-south-1", "file", None), 0.1093),
        (("aws", "us-west-2", "aws", None), None),
        (("aws", None, "gcp", "us-central1"), None),
        (("aws", "us-west-2", "aws", "mx-central-1"), 0.02),  # the region that it leaves decides
        (("aws", "moon-base-1", "aws", "us-west-2"), None),
        (("gcp", "us-central1", "gcp", "us-east1"), 0.02),
        (("gcp", "us", "gcp", "us-east1"), 0.02),
        (("gcp", "us-central1", "gcp", "australia-southeast1"), 0.15),
        (("gcp", "asia-east1", "gcp", "asia-south1"), None),
        (("gcp", "us-central1", "aws", "us-west-2"), 0.12),
        (("gcp", "us-central1", "aws", "ap-southeast-2"), 0.19),
        (("aws", "us-west-2", "aws", "us-west-2"), 0.0),
        (("file", None, "aws", "us-west-2"), 0.0),
        (("server", None, "aws", "us-west-2"), 0.0),
    ],
)
def test_egress_by_pair(pair, usd):
    provider, region, to_provider, to_region = pair
    source, target = Site(provider, region, bucket="a"), Site(to_provider, to_region, bucket="b")
    assert egress_usd_per_gb(source, target) == usd


def test_the_three_numbers():
    cost = estimate_cost(EAST, WEST, size_bytes=10**12, objects=3_000_000, written=1_000_000)
    assert cost.egress_usd == pytest.approx(20)
    assert cost.requests_usd == pytest.approx(3_000 * 0.0004 + 1_000 * 0.005)
    assert cost.total_usd == pytest.approx(26.2)
    public = Site("aws", "us-east-1", bucket="a", anonymous=True)
    read = estimate_cost(public, WEST, size_bytes=10**12, objects=3_000_000, written=1_000)
    assert read.total_usd == pytest.approx(0.005), "its owner pays"
    down = estimate_cost(EAST, Site("file"), size_bytes=10**12, objects=1_000, written=1_000)
    assert down.total_usd == pytest.approx(90 + 0.0004)


def test_requests_of_a_region_that_is_not_listed_cost_what_they_cost_at_most():
    for region in (None, "moon-base-1"):
        site = Site("aws", region, bucket="a")
        cost = estimate_cost(site, site, size_bytes=0, objects=1_000, written=1_000)
        entries = [each for each in price_list()["requests"] if each["provider"] == "aws"]
        most = (max(each[field] for each in entries) for field in TABLES["requests"])
        assert cost.total_usd == pytest.approx(sum(most))


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
    ],
)
def test_whose_a_place_is(site, provider, name):
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
        (s3(), s3(), "beside"),
        (s3(region="us-east-1"), gs(region="us-east1"), "away"),
        (gs(), gs("ccc"), "unknown"),
        (gs(region="US"), gs("ccc", region="us-central1"), "away"),
        (s3(**OWN), s3("ccc", **OWN), "beside"),
        (s3(**OWN, region="x"), s3("ccc", **OWN, region="y"), "away"),
        (s3(**OWN, region="x"), s3("ccc", **OWN), "beside"),
        (s3(**OWN), s3(**OTHER), "away"),
        (DIRECTORY, DIRECTORY, "beside"),
        (DIRECTORY, s3(), "away"),
    ],
)
def test_distance_is_the_table_and_symmetric(one, other, expected):
    assert distance(one, other) == distance(other, one) == expected


NOWHERE = Site("aws", bucket="c")


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("source", [EAST, WEST, NOWHERE, DIRECTORY])
@pytest.mark.parametrize("setting", [True, False])
def test_a_setting_is_obeyed(setting, source, again):
    assert choose_mirror(setting, source, WEST, again="because" * again).wanted is setting


@pytest.mark.parametrize(
    ("source", "storage", "again", "wanted"),
    [
        (DIRECTORY, DIRECTORY, True, False),
        (DIRECTORY, WEST, True, False),
        (WEST, WEST, True, False),
        (NOWHERE, WEST, True, False),
        (EAST, WEST, False, False),
        (EAST, WEST, True, True),
        (EAST, DIRECTORY, True, True),
    ],
)
def test_auto(source, storage, again, wanted):
    assert choose_mirror("auto", source, storage, again="because" * again).wanted is wanted
