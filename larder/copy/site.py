"""Places of objects, for prices and for the choice of a mirror. Pure except `missing_region`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

from larder.config.models.locations import Location
from larder.config.urls import cloud_of, parse_url
from larder.store.base import Readable

if TYPE_CHECKING:
    from larder.config.models.cluster import Cluster
    from larder.config.models.dataset import Dataset

L = TypeVar("L", bound=Location)
Distance = Literal["beside", "away", "unknown"]

_OF_SCHEME = {"s3": "aws", "gs": "gcp"}


class Site(NamedTuple):
    """A place where objects are.

    ``provider`` is ``aws``, ``gcp``, ``server`` (any other server, whose host and port are
    ``server``) or ``file``. ``region`` is in lower case. If requests are ``anonymous``, only the
    bucket's owner is billed.
    """

    provider: str
    region: str | None = None
    server: str = ""
    bucket: str = ""
    anonymous: bool = False

    @staticmethod
    def of(location: Location) -> Site:
        url, access = parse_url(location.url), location.access
        if url.scheme not in _OF_SCHEME:
            return Site("file")
        provider, server = _OF_SCHEME[url.scheme], ""
        if access.endpoint:
            provider = cloud_of(access.endpoint) or "server"
        if provider == "server":
            server = urlsplit(access.endpoint or "").netloc.lower()
        region = access.region.lower() if access.region else None
        return Site(provider, region, server, url.bucket, access.anonymous)

    @property
    def priced(self) -> bool:
        """Whether the provider has a price list here."""
        return self.provider in ("aws", "gcp")

    @property
    def name(self) -> str:
        if self.provider == "file":
            return "this machine"
        if self.server:
            return f"{self.server} ({self.region})" if self.region else self.server
        provider = {"aws": "AWS", "gcp": "Google Cloud"}[self.provider]
        return f"{provider} {self.region}" if self.region else f"{provider} (region not given)"


def distance(one: Site, other: Site) -> Distance:
    """Say how far two places are from each other.

    =====================================================  =======
    two places                                             answer
    =====================================================  =======
    two directories                                        beside
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
    if one.provider == "file" or one.bucket == other.bucket:
        return "beside"
    if one.region and other.region:
        return "beside" if one.region == other.region else "away"
    return "unknown" if one.priced else "beside"


def missing_region(location: Location, store: Readable) -> str | None:
    """Return the region of a listed or read bucket whose location names none; else None."""
    site = Site.of(location)
    return store.region() or None if site.priced and not site.region else None


def in_region(location: L, region: str | None) -> L:
    """Return the location in a region that was found; unchanged if none was."""
    return location.model_copy(update={"region": region}) if region else location


class MirrorChoice(NamedTuple):
    """Whether objects are copied to the storage first, and the reason."""

    wanted: bool
    reason: str


def choose_mirror(
    setting: bool | Literal["auto"], source: Site, storage: Site, *, again: str
) -> MirrorChoice:
    """Choose a mirror if objects are far away and may be read ``again``, for a reason.

    ======  =====================  ===========  ======
    mirror  source                 read again?  mirror
    ======  =====================  ===========  ======
    true    any                    --           yes
    false   any                    --           no
    auto    a directory            --           no
    auto    beside the storage     --           no
    auto    its region is unknown  --           no
    auto    elsewhere              no           no
    auto    elsewhere              yes          yes
    ======  =====================  ===========  ======

    *Elsewhere* is another region, provider or server (`distance`). A directory costs nothing to
    read again, wherever the storage is.

    Samples of a published version are packed and cached again from its shards. So objects are read
    a second time only if the finished shards of a stopped run do not fit the inputs of the next
    one: a bad image was replaced or excluded (``validate``, with ``on_bad_sample: fail``), or
    images are transformed (``shards.images``) with other options or libraries.
    """
    if setting != "auto":
        return MirrorChoice(setting, f"mirror is {str(setting).lower()}")
    apart = distance(source, storage)
    if apart == "beside":
        return MirrorChoice(False, "the source is beside the storage")
    if source.provider == "file":
        return MirrorChoice(False, "the source is on this machine, and costs nothing to read again")
    if apart == "unknown":
        reason = "the regions of the source and of the storage are not both given"
        return MirrorChoice(False, reason)
    if not again:
        return MirrorChoice(False, "every object is read only once")
    place = "on this machine" if storage.provider == "file" else f"at {storage.name}"
    places = f"the source is at {source.name} and the storage {place}"
    return MirrorChoice(True, f"{places}, and {again}")


def mirror_choice(dataset: Dataset, cluster: Cluster, *, images: int) -> MirrorChoice:
    """Choose whether a run of a dataset on a cluster has a mirror, with the reason.

    ``images`` is the number of images among the objects.
    """
    if dataset.source.expands:  # a dataset file cannot ask for a mirror as well
        reason = "what is in archives and tables is read from these, which are not copied"
        return MirrorChoice(False, reason)
    again = ""
    if images and dataset.shards.images:
        again = "images are transformed, from the objects again if the options change"
    elif images and dataset.validate_ != "none" and dataset.on_bad_sample == "fail":
        again = "a bad image would have every object read again"
    source, storage = Site.of(dataset.source), Site.of(cluster.storage)
    return choose_mirror(dataset.mirror, source, storage, again=again)


def resolved(dataset: Dataset, choice: MirrorChoice) -> Dataset:
    """Return the dataset for a job, with the choice of a mirror."""
    return dataset.model_copy(update={"mirror": choice.wanted})
