"""Tests of larder.transfer.prices: every price has a date and a source, and can be reached."""

from __future__ import annotations

import json
import re

import pytest

from larder.transfer.prices import list_prices, load_prices

PRICES = list_prices()
TABLES = {
    "egress": {"usd_per_gb"},
    "requests": {"write_usd_per_1000", "read_usd_per_1000"},
    "storage": {"usd_per_gb_month"},
}


@pytest.mark.parametrize("table", TABLES)
def test_every_price_has_a_date_and_a_source(table: str) -> None:
    entries = PRICES.document[table]
    assert entries
    for entry in entries:
        assert re.fullmatch(r"20\d\d(-(0[1-9]|1[0-2]))?", entry["date"])
        assert PRICES.document["sources"][entry["source"]]
        assert entry["regions"]
        assert all(0 < entry[field] < 1 for field in TABLES[table])


@pytest.mark.parametrize(
    ("pair", "usd"),
    [
        (("aws", "us-east-1", "aws", "us-west-2"), 0.02),
        (("aws", "us-east-1", "aws", "us-east-2"), 0.01),
        (("aws", "eu-west-1", "aws", "us-east-1"), 0.02),
        (("aws", "sa-east-1", "aws", "us-east-1"), 0.138),
        (("aws", "us-west-2", "gcp", "us-central1"), 0.09),
        (("aws", "us-west-2", "gcp", None), 0.09),
        (("aws", "ap-south-1", "file", None), 0.1093),
        (("aws", "us-west-2", "aws", None), None),
        (("aws", "us-west-2", "aws", "moon-base-1"), None),
        (("aws", "moon-base-1", "aws", "us-west-2"), None),
        (("aws", "moon-base-1", "gcp", "us-central1"), None),
        (("gcp", "us-central1", "gcp", "us-east1"), 0.02),
        (("gcp", "us", "gcp", "us-east1"), 0.02),
        (("gcp", "us-central1", "gcp", "europe-west4"), 0.08),
        (("gcp", "us-central1", "gcp", "australia-southeast1"), 0.15),
        (("gcp", "asia-southeast2", "gcp", "us-west1"), 0.15),
        (("gcp", "asia-east1", "gcp", "asia-south1"), None),
        (("gcp", "us-central1", "aws", "us-west-2"), 0.12),
        (("gcp", "us-central1", "aws", "ap-southeast-2"), 0.19),
        (("gcp", "europe-west4", "file", None), 0.12),
    ],
)
def test_egress_by_pair(pair: tuple[str, str, str, str | None], usd: float | None) -> None:
    price = PRICES.egress(*pair)
    assert (price.usd if price else None) == usd


def test_requests_and_storage_by_region() -> None:
    write, read = (PRICES.request("aws", "us-east-1", writes=writes) for writes in (True, False))
    assert write is not None
    assert read is not None
    assert (write.usd, read.usd) == (0.005, 0.0004)
    assert PRICES.request("aws", "moon-base-1", writes=True) is None
    storage = PRICES.storage("gcp", "us")
    assert storage is not None
    assert storage.usd == 0.026
    assert "cloud.google.com" in storage.source
    assert PRICES.storage("gcp", "moon1") is None


def test_the_first_entry_that_fits_applies() -> None:
    entry = {"from": "aws", "to": "aws", "date": "2026", "source": "s"}
    found = load_prices(
        json.dumps(
            {
                "sources": {"s": "somewhere"},
                "egress": [
                    {**entry, "regions": ["a"], "to_regions": ["b"], "usd_per_gb": 0.1},
                    {**entry, "regions": ["*"], "usd_per_gb": 0.2},
                ],
            }
        )
    )
    prices = [found.egress("aws", "a", "aws", to) for to in ("b", "c")]
    assert [price.usd for price in prices if price] == [0.1, 0.2]
