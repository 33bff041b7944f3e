"""What a plan costs: the bytes that cross, the requests, and the mirror for a month. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from larder.config.models import Copy, Location
from larder.pipeline.results import Totals
from larder.transfer.cost import (
    Cost,
    Requests,
    egress_cost,
    request_cost,
    storage_usd_per_month,
    total,
)
from larder.transfer.inventory import Indexing, Inventory, Listed
from larder.transfer.site import Site

_NOTHING = Totals()

PAGE = 1000
"""Keys in a page of a listing, in S3 and in Google Cloud."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a run would move.

    Attributes:
        inventory: The objects in the source.
        copied: Objects that are copied to the mirror; None if there is no mirror.
        read: Objects that are packed: from the mirror if there is one, else from the source.
            Their number is that of the requests.
        shards: Shards that are written.
        mirrored: All objects that the mirror holds afterwards.
        own: What is packed from containers of Larder's own, in the storage.
        indexes: Small objects that are written with the shards, such as indexes for readers.
    """

    inventory: Inventory | Listed
    copied: Totals | None
    read: Totals
    shards: Totals
    mirrored: Totals
    own: Totals = _NOTHING
    indexes: int = 0


@dataclass(frozen=True, slots=True)
class Priced:
    """An estimate of what a run costs. Its manifests and documents, a few dozen, are not counted.

    Attributes:
        cost: In US dollars.
        source: Requests to the source.
        storage: Requests to the storage.
        server_side: Whether copies are made by the provider's servers.
        month_usd: What the mirror costs a month; None if that is not known, 0 without a mirror.
    """

    cost: Cost
    source: Requests
    storage: Requests
    server_side: bool
    month_usd: float | None

    @property
    def requests(self) -> Requests:
        """All requests."""
        return self.source + self.storage


def price(read_from: Location, write_to: Location, limits: Copy, work: Work) -> Priced:
    """Price a run or a copy.

    Args:
        read_from: The source.
        write_to: The storage.
        limits: How objects are copied.
        work: What would be moved.
    """
    source, storage = Site.of(read_from), Site.of(write_to)
    server_side = _server_side(source, storage)
    theirs, ours = _requests(work, limits, server_side=server_side)
    theirs = Requests() if source.provider == "file" else theirs
    ours = Requests() if storage.provider == "file" else ours
    crossing = work.read if work.copied is None else work.copied
    cost = total(
        (
            egress_cost(source, storage, crossing.bytes + _indexing(work).bytes),
            request_cost(source, theirs),
            request_cost(storage, ours),
        )
    )
    kept = 0 if work.copied is None else work.mirrored.bytes
    return Priced(cost, theirs, ours, server_side, storage_usd_per_month(storage, kept))


def _requests(work: Work, copy: Copy, *, server_side: bool) -> tuple[Requests, Requests]:
    """The requests to the source and to the storage."""
    indexing = _indexing(work)
    pages = max(1, math.ceil(work.inventory.listed / PAGE))
    theirs = Requests(get=indexing.requests, list=pages)
    inside = work.inventory.inside if isinstance(work.inventory, Inventory) else None
    looked_up = inside.containers if inside else 0
    own = Totals(indexing.own, indexing.own_bytes)
    written = sum(_writes(each, copy.part_bytes) for each in (work.shards, own))
    ours = Requests(get=work.own.count + looked_up, put=written + work.indexes + indexing.indexes)
    reads = Requests(get=work.read.count)
    if work.copied is None:
        return theirs + reads, ours
    if server_side:
        writes = _copies(work, copy.server_copy_bytes)
        return theirs, ours + reads + Requests(copy=writes)
    writes = _copies(work, copy.part_bytes)
    return theirs + Requests(get=work.copied.count), ours + reads + Requests(put=writes)


def _indexing(work: Work) -> Indexing:
    return work.inventory.indexing if isinstance(work.inventory, Inventory) else Indexing()


def _copies(work: Work, part_bytes: int) -> int:
    """Requests that write the copies, whose sizes are like those of all objects."""
    everything, copied = work.inventory, work.copied or Totals()
    every = sum(_writes(Totals(*found), part_bytes) for found in everything.sizes)
    return max(copied.count, math.ceil(every * copied.count / max(1, everything.objects)))


def _writes(objects: Totals, part_bytes: int) -> int:
    """Requests that write objects of about the same size: one, or one more than two for parts."""
    if not objects.count:
        return 0
    parts = math.ceil(objects.bytes / objects.count / part_bytes)
    return objects.count * (parts + 2 if parts > 1 else 1)


def _server_side(source: Site, storage: Site) -> bool:
    """Whether the provider's servers copy: within one provider, and one server."""
    same = (source.provider, source.server) == (storage.provider, storage.server)
    return same and source.provider not in ("file", "memory")
