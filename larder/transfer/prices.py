"""List prices of object stores, from prices.json: each with its date and its source.

A price that is not listed is unknown (None), never 0. The first entry that fits applies.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Any

INTERNET = "internet"
"""In ``to`` of an entry: any place outside the provider's own network."""


@dataclass(frozen=True, slots=True)
class Price:
    """One price in US dollars, for a unit that its user knows.

    Attributes:
        usd: The price.
        date: When it was so: a year, or a year and a month.
        source: Where it is from.
    """

    usd: float
    date: str
    source: str


@dataclass(frozen=True, slots=True)
class Prices:
    """A price list.

    Args:
        document: The contents of prices.json.
    """

    document: Mapping[str, Any]

    def egress(
        self, provider: str, region: str, to_provider: str, to_region: str | None
    ) -> Price | None:
        """Of a GB that leaves a region for another one, or for another provider.

        Args:
            provider: ``aws`` or ``gcp``.
            region: Where the bytes are.
            to_provider: Of the place they go to, which may be none that has prices.
            to_region: Its region; None if it has none, or it is not known.
        """
        same = provider == to_provider
        if same and (to_region is None or not self.knows(provider, to_region)):
            return None
        for entry in self.document["egress"]:
            fits = (
                entry["from"] == provider
                and _named(region, entry["regions"])
                and entry["to"] == (provider if same else INTERNET)
                and _to(to_region, entry)
            )
            if fits:
                return self._price(entry, "usd_per_gb")
        return None

    def knows(self, provider: str, region: str) -> bool:
        """Whether a region of a provider appears anywhere as one that bytes leave."""
        entries = (entry for entry in self.document["egress"] if entry["from"] == provider)
        return any(_named(region, entry["regions"]) for entry in entries)

    def request(self, provider: str, region: str, *, writes: bool) -> Price | None:
        """Of 1,000 requests.

        Args:
            provider: ``aws`` or ``gcp``.
            region: Of the bucket.
            writes: PUT, COPY, POST and LIST (class A of GCS); otherwise GET and HEAD (class B).
        """
        field = "write_usd_per_1000" if writes else "read_usd_per_1000"
        return self._of_place("requests", provider, region, field)

    def storage(self, provider: str, region: str) -> Price | None:
        """Of a GB in the standard storage class for a month."""
        return self._of_place("storage", provider, region, "usd_per_gb_month")

    def _of_place(self, table: str, provider: str, region: str, field: str) -> Price | None:
        for entry in self.document[table]:
            if entry["provider"] == provider and _named(region, entry["regions"]):
                return self._price(entry, field)
        return None

    def _price(self, entry: Mapping[str, Any], field: str) -> Price:
        return Price(entry[field], entry["date"], self.document["sources"][entry["source"]])


def load_prices(text: str) -> Prices:
    """The price list in the text of a JSON document like prices.json."""
    return Prices(json.loads(text))


@cache
def list_prices() -> Prices:
    """The price list that Larder comes with."""
    file = resources.files("larder.transfer") / "prices.json"
    return load_prices(file.read_text(encoding="utf-8"))


def _to(region: str | None, entry: Mapping[str, Any]) -> bool:
    if "to_regions" not in entry:
        return True
    return region is not None and _named(region, entry["to_regions"])


def _named(region: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(region, pattern) for pattern in patterns)
