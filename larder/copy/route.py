"""Source, storage and engine of a copy.

An engine that sends everything at once (Skyplane) runs before the batches of a copy. Nothing that
it reports is trusted: the batches keep the right objects that have arrived, and copy the rest
(`larder.copy.proof`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from larder.config.models.copy_config import CopyConfig
from larder.config.models.locations import Location
from larder.copy.copy_place import CopyPlace
from larder.copy.skyplane.engine_choice import (
    CopyEnd,
    EngineChoice,
    choose_engine,
    skyplane_available,
)
from larder.errors import ConfigError
from larder.jobs.results import Totals
from larder.progress import Progress
from larder.store import open_location
from larder.store.base import Store


class SentAhead(NamedTuple):
    """Result of an engine that ran before the batches; the ``message`` is of one that failed.

    ``adopt``: the engine may have copied objects.
    """

    adopt: bool = False
    message: str = ""


class Route(NamedTuple):
    """Source and storage of a copy; ``place`` is below ``root``, a storage's or dataset's URL."""

    source: Location
    storage: Location
    root: str
    place: CopyPlace
    limits: CopyConfig
    copies: Totals

    def open_source(self) -> Store:
        return open_location(self.source, limits=self.limits)

    def open_root(self) -> Store:
        return open_location(self.storage, self.root, limits=self.limits)

    @property
    def choice(self) -> EngineChoice:
        return choose_engine(
            *self._ends(),
            limits=self.limits,
            total_bytes=self.copies.bytes,
            available=skyplane_available(self.limits.skyplane),
        )

    def check(self) -> None:
        """Refuse a copy that the chosen engine cannot make; see `check_skyplane`."""
        if self.copies.count and self.choice.engine == "skyplane":
            from larder.copy.skyplane.adapter import check_skyplane

            check_skyplane(*self._ends(), self.limits.skyplane)

    def send(self, keys: Iterable[str], progress: Progress) -> SentAhead:
        """Send the objects ahead, if the chosen engine does so; ``keys`` are in byte order.

        ``config.cost_limit``: the engine failed after it had sent something, and a limit is set.
        The plan has compared the limit with the cost of sending everything once.
        """
        if self.choice.engine != "skyplane":
            return SentAhead()
        from larder.copy.skyplane.adapter import transfer

        sent = transfer(
            *self._ends(),
            keys,
            limits=self.limits.skyplane,
            total_bytes=self.copies.bytes,
            progress=progress,
        )
        if sent.done:
            return SentAhead(adopt=True)
        if sent.sent and self.limits.max_cost_usd is not None:
            message = f"{sent.message}; what it has sent counts against max_cost_usd"
            hint = "run again: what has arrived is not copied again, and the plan prices the rest"
            raise ConfigError("config.cost_limit", message, where="cluster.copy", hint=hint)
        return SentAhead(True, f"{sent.message}; the native engine copies what is missing")

    def _ends(self) -> tuple[CopyEnd, CopyEnd]:
        url = self.root + self.place.objects
        target = open_location(self.storage, url, limits=self.limits)
        return (
            CopyEnd(self.source.url, self.open_source(), self.source.access),
            CopyEnd(url, target, self.storage.access),
        )
