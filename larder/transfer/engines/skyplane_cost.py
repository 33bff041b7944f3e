"""What a Skyplane transfer costs and how long it takes, roughly. Pure.

Skyplane's own estimate leaves out its machines, and counts the egress again for every queued job.
"""

from __future__ import annotations

from dataclasses import dataclass

from larder.errors import ConfigError

SETUP_SECONDS = 150.0
"""To start the machines, install Docker, pull the gateway's image, and end the machines again."""

BYTES_PER_SECOND = 0.6e9
"""Of one pair of machines: the 5 Gbit/s that AWS allows one m5.8xlarge to send to the internet."""

LEAST_SECONDS = 60.0
"""What AWS and Google Cloud charge for at least."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that Skyplane 0.3.2 starts at one provider.

    Attributes:
        kind: The provider's name of it.
        usd_per_hour: More than it costs in any region, on demand, with disk and public address.
        source: Where the price is from.
        date: When.
    """

    kind: str
    usd_per_hour: float
    source: str
    date: str


MACHINES = {
    "s3": Machine(
        "m5.8xlarge",
        2.60,
        "AWS list price of 1.54 in us-east-1, times 1.65 for the dearest region, plus 0.05; "
        "from memory, not looked up",
        "2026-11-22",
    ),
    "gs": Machine(
        "n2-standard-16",
        1.40,
        "Google Cloud list price of 0.78 in us-central1, times 1.65 for the dearest region, plus "
        "0.1; from memory, not looked up",
        "2026-11-22",
    ),
}
"""By the scheme of the bucket's URL."""


@dataclass(frozen=True, slots=True)
class SkyplaneCost:
    """A prediction.

    Attributes:
        seconds: How long it probably takes, with the machines' start and end.
        egress_usd: What the provider of the source charges for the bytes.
        machines_usd: What the machines probably cost.
        most_usd: The most that all of it can cost, with the machines until the time limit.
    """

    seconds: float
    egress_usd: float
    machines_usd: float
    most_usd: float

    @property
    def usd(self) -> float:
        """What it probably costs."""
        return self.egress_usd + self.machines_usd


def predict(
    schemes: tuple[str, str],
    *,
    total_bytes: int,
    egress_usd_per_gb: float,
    max_instances: int,
    most_seconds: float,
) -> SkyplaneCost:
    """Predict time and cost of a transfer.

    Args:
        schemes: Of the URLs of source and target, ``s3`` or ``gs``.
        total_bytes: What will be copied.
        egress_usd_per_gb: What the provider of the source charges for 10^9 bytes.
        max_instances: Machines on each side.
        most_seconds: After this the last machine is ended.
    """
    seconds = SETUP_SECONDS + total_bytes / (BYTES_PER_SECOND * max_instances)
    egress_usd = egress_usd_per_gb * total_bytes / 1e9
    hourly_usd = max_instances * sum(MACHINES[scheme].usd_per_hour for scheme in schemes)
    return SkyplaneCost(
        seconds=seconds,
        egress_usd=egress_usd,
        machines_usd=hourly_usd * max(seconds, LEAST_SECONDS) / 3600,
        most_usd=egress_usd + hourly_usd * max(most_seconds, LEAST_SECONDS) / 3600,
    )


def check_cost(cost: SkyplaneCost, max_cost_usd: float | None) -> None:
    """Refuse a transfer that may cost more than the limit.

    Raises:
        ConfigError: ``config.cost_limit``.
    """
    if max_cost_usd is None or cost.most_usd <= max_cost_usd:
        return
    message = (
        f"with Skyplane the copy may cost up to ${cost.most_usd:,.2f} (egress "
        f"${cost.egress_usd:,.2f}, the rest for machines until the time limit), more than "
        f"max_cost_usd {max_cost_usd:,.2f}"
    )
    hint = "raise max_cost_usd, lower copy.skyplane.timeout_seconds, or set copy.engine: native"
    raise ConfigError("config.cost_limit", message, where="cluster.copy", hint=hint)


def spent_usd(
    machines: list[tuple[str, str]], *, seconds: float, sent_bytes: int, egress_usd_per_gb: float
) -> tuple[float, float]:
    """Machine hours and US dollars that a transfer used, at the prices of `MACHINES`.

    Args:
        machines: Region tag (``aws:us-east-1``) and kind of each; Skyplane may choose smaller kinds
            than those of `MACHINES`, so that this is more than was charged.
        seconds: From their start to their end.
        sent_bytes: What left the source.
        egress_usd_per_gb: See `predict`.
    """
    hours = max(seconds, LEAST_SECONDS) / 3600
    schemes = ["s3" if tag.startswith("aws:") else "gs" for tag, _ in machines]
    machines_usd = hours * sum(MACHINES[scheme].usd_per_hour for scheme in schemes)
    return hours * len(machines), machines_usd + egress_usd_per_gb * sent_bytes / 1e9
