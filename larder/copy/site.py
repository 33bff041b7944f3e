"""Where bytes are, for prices and for the choice of a mirror: provider, server and region."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar
from urllib.parse import urlsplit

from larder.config.urls import cloud_of, parse_url

if TYPE_CHECKING:
    from larder.config.models import Location  # imports pydantic
    from larder.store.base import Readable

L = TypeVar("L", bound="Location")
Distance = Literal["beside", "away", "unknown"]

_OF_SCHEME = {"s3": "aws", "gs": "gcp", "memory": "memory"}


@dataclass(frozen=True, slots=True)
class Site:
    """A place where objects are.

    Attributes:
        provider: ``aws``, ``gcp``, ``server`` (any other server), ``file`` or ``memory``.
        region: In lower case; None if it is not given.
        server: Host and port of a server that is none of these providers'; else empty.
        anonymous: Whether requests are not signed, so that nobody is billed for them but the owner.
    """

    provider: str
    region: str | None = None
    server: str = ""
    bucket: str = ""
    anonymous: bool = False

    @staticmethod
    def of(location: Location) -> Site:
        url = parse_url(location.url)
        if url.is_directory:
            return Site("file")
        access = location.access
        region = access.region.lower() if access.region else None
        provider, server = _OF_SCHEME[url.scheme], ""
        if access.endpoint:
            provider = cloud_of(access.endpoint) or "server"
        if provider == "server":
            server = urlsplit(access.endpoint or "").netloc.lower()
        return Site(provider, region, server, url.bucket, access.anonymous)

    @property
    def priced(self) -> bool:
        """Whether its provider has a price list here."""
        return self.provider in ("aws", "gcp")

    @property
    def name(self) -> str:
        if self.provider in ("file", "memory"):
            return "this machine"
        if self.server:
            return f"{self.server} ({self.region})" if self.region else self.server
        provider = {"aws": "AWS", "gcp": "Google Cloud"}[self.provider]
        return f"{provider} {self.region}" if self.region else f"{provider} (region not given)"


def distance(one: Site, other: Site) -> Distance:
    """How far two places are from each other.

    =====================================================  =======
    two places                                             answer
    =====================================================  =======
    two directories, or two in memory                      beside
    different providers, or different servers              away
    the same bucket                                        beside
    different regions                                      away
    the same region                                        beside
    a server other than AWS and Google, a region missing   beside
    AWS or Google, a region missing                        unknown
    =====================================================  =======
    """
    if (one.provider, one.server) != (other.provider, other.server):
        return "away"
    if one.provider in ("file", "memory") or one.bucket == other.bucket:
        return "beside"
    if one.region and other.region:
        return "beside" if one.region == other.region else "away"
    return "unknown" if one.priced else "beside"


def missing_region(location: Location, store: Readable) -> str | None:
    """The region of a bucket, already listed or read, whose location does not say it; else None."""
    site = Site.of(location)
    return store.region() or None if site.priced and not site.region else None


def in_region(location: L, region: str | None) -> L:
    """The location in a region that was found; as it is if none was."""
    return location.model_copy(update={"region": region}) if region else location
