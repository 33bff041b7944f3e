"""What goes before the batches of a copy: an engine that sends everything at once (Skyplane).

Nothing that it says is trusted: the batches then keep what has arrived if it is the right object,
and copy the rest (`larder.transfer.adopt`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from larder.config.models import Copy, Location
from larder.pipeline.job import open_location
from larder.pipeline.results import Totals
from larder.progress import Progress
from larder.transfer.cost import GB, egress_cost
from larder.transfer.engines.choice import Choice, choose_engine
from larder.transfer.engines.skyplane import (
    SkyplaneLimits,
    SkyplanePlace,
    check_skyplane,
    run_skyplane,
    skyplane_available,
)
from larder.transfer.site import Site

__all__ = ["Route", "SentAhead"]


@dataclass(frozen=True, slots=True)
class SentAhead:
    """What an engine did before the batches.

    Attributes:
        adopt: Whether it may have copied objects.
        message: A line for the user, if it failed; else empty.
    """

    adopt: bool = False
    message: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """From where to where objects are copied, and how.

    Attributes:
        source: The source.
        storage: The storage.
        url: URL of the folder in the storage that the keys of the copies begin at.
        limits: How objects are copied.
        copies: The objects to copy, and their bytes.
    """

    source: Location
    storage: Location
    url: str
    limits: Copy
    copies: Totals

    @property
    def choice(self) -> Choice:
        """The engine, and why."""
        limits = self.limits
        source, target = self._ends()
        return choose_engine(
            source.store.features.place,
            target.store.features.place,
            total_bytes=self.copies.bytes,
            configured=limits.engine,
            min_bytes=limits.skyplane.min_bytes,
            available=skyplane_available(SkyplaneLimits.of(limits).python),
            source_access=self.source.access,
            target_access=self.storage.access,
        )

    def check(self) -> None:
        """Refuse a copy that the chosen engine cannot make, or that may cost too much.

        Raises:
            ConfigError: See `larder.transfer.engines.skyplane.check_skyplane`.
        """
        if self.copies.count and self.choice.engine == "skyplane":
            check_skyplane(
                *self._ends(),
                limits=SkyplaneLimits.of(self.limits),
                total_bytes=self.copies.bytes,
                egress_usd_per_gb=self._egress_usd_per_gb(),
            )

    def send(self, keys: Iterable[str], progress: Progress) -> SentAhead:
        """Send the objects ahead, if the chosen engine does that.

        Args:
            keys: Keys of the objects, relative to the source, in the order of their bytes.
            progress: Reports progress.

        Raises:
            ConfigError: See `check`.
            LarderError: Any error of ``progress``.
        """
        if self.choice.engine != "skyplane":
            return SentAhead()
        source, target = self._ends()
        report = run_skyplane(
            source,
            target,
            limits=SkyplaneLimits.of(self.limits),
            total_bytes=self.copies.bytes,
            egress_usd_per_gb=self._egress_usd_per_gb(),
            keys=keys,
            progress=progress,
        )
        failed = report.status != "done"
        message = f"{report.message}; the native engine copies what is missing" if failed else ""
        return SentAhead(adopt=True, message=message)

    def _ends(self) -> tuple[SkyplanePlace, SkyplanePlace]:
        seconds = self.limits.give_up_seconds

        def end(location: Location, url: str) -> SkyplanePlace:
            store = open_location(location, url, give_up_seconds=seconds)
            return SkyplanePlace(url, store, location.access.region, location.access)

        return end(self.source, self.source.url), end(self.storage, self.url)

    def _egress_usd_per_gb(self) -> float | None:
        """What the provider of the source charges; None if that is not known."""
        cost = egress_cost(Site.of(self.source), Site.of(self.storage), GB)
        return cost.egress_usd
