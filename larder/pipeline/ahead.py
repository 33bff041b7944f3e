"""What goes before the batches of a copy: an engine that sends everything at once (Skyplane).

Nothing that it says is trusted: the batches then keep what has arrived if it is the right object,
and copy the rest (`larder.transfer.adopt`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import monotonic

from larder.config.models import Copy, Location
from larder.errors import ConfigError
from larder.pipeline.job import open_location
from larder.pipeline.results import Totals
from larder.progress import Progress
from larder.transfer.engines.choice import Choice, choose_engine
from larder.transfer.engines.skyplane import (
    SkyplanePlace,
    check_skyplane,
    run_skyplane,
    skyplane_available,
)
from larder.transfer.engines.skyplane_supervise import SkyplaneLimits, SkyplaneReport
from larder.transfer.engines.uploads import UploadRecords
from larder.transfer.prices import GB, egress_usd_per_gb
from larder.transfer.site import Site


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
        root_url: URL of the store of the copies.
        prefix: Of the copies' keys below the root; empty, or ends in a slash.
        limits: How objects are copied.
        copies: The objects to copy, and their bytes.
    """

    source: Location
    storage: Location
    root_url: str
    prefix: str
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

    def send(
        self, keys: Callable[[], Iterable[str]], progress: Progress, uploads: UploadRecords
    ) -> SentAhead:
        """Send the objects ahead, if the chosen engine does that.

        Uploads in parts that it has begun and left are aborted.

        Args:
            keys: The keys of the objects, relative to the source, in the order of their bytes.
            progress: Reports progress.
            uploads: The records of uploads in the storage, which somebody may continue.

        Raises:
            ConfigError: See `check`; ``config.cost_limit``: it failed, and copying everything once
                more could cost more than the limit, with what was already spent.
            LarderError: Any error of ``progress``.
        """
        if self.choice.engine != "skyplane":
            return SentAhead()
        source, target = self._ends()
        began_seconds = monotonic()
        report = run_skyplane(
            source,
            target,
            limits=SkyplaneLimits.of(self.limits),
            total_bytes=self.copies.bytes,
            egress_usd_per_gb=self._egress_usd_per_gb(),
            keys=keys(),
            progress=progress,
        )
        uploads.abort_left(self.prefix, keys, monotonic() - began_seconds)
        if report.status != "done":
            self._check_again(report)
        failed = report.status != "done"
        message = f"{report.message}; the native engine copies what is missing" if failed else ""
        return SentAhead(adopt=True, message=message)

    def _check_again(self, failed: SkyplaneReport) -> None:
        """Refuse to copy again what was paid for, if that may cost more than the limit.

        What has arrived is only known once it has been compared, so everything counts again. The
        plan of the next run has compared it.
        """
        limit = self.limits.max_cost_usd
        if limit is None or not failed.usd:
            return
        again_usd = (self._egress_usd_per_gb() or 0.0) * self.copies.bytes / GB
        if failed.usd + again_usd <= limit:
            return
        message = (
            f"{failed.message}; that cost about ${failed.usd:,.2f}, and the native engine may need"
            f" up to ${again_usd:,.2f} for the same objects: together more than max_cost_usd"
            f" {limit:,.2f}"
        )
        hint = "run again: what has arrived is not copied again, and the plan prices the rest"
        raise ConfigError("config.cost_limit", message, where="cluster.copy", hint=hint)

    def _ends(self) -> tuple[SkyplanePlace, SkyplanePlace]:
        seconds = self.limits.give_up_seconds

        def end(location: Location, url: str) -> SkyplanePlace:
            store = open_location(location, url, give_up_seconds=seconds)
            return SkyplanePlace(url, store, location.access.region, location.access)

        return end(self.source, self.source.url), end(self.storage, self.root_url + self.prefix)

    def _egress_usd_per_gb(self) -> float | None:
        """What the provider of the source charges; None if that is not known."""
        return egress_usd_per_gb(Site.of(self.source), Site.of(self.storage))
