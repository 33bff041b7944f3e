"""The regions of buckets that the configuration does not say, for prices and automatic mirrors."""

from __future__ import annotations

from typing import TypeVar

from larder.config.models import Location
from larder.store.base import Readable
from larder.transfer.site import Site

L = TypeVar("L", bound=Location)


def found_region(location: Location, store: Readable) -> str | None:
    """The region of a bucket whose location does not say it; None if there is nothing to find.

    Args:
        location: As configured.
        store: The same; it has been listed or read, so that it is known that its region is right.
    """
    site = Site.of(location)
    return store.region() or None if site.priced and not site.region else None


def in_region(location: L, region: str | None) -> L:
    """The location in a region that was found; as it is if none was."""
    return location.model_copy(update={"region": region}) if region else location
