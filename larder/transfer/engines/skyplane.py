"""Copies a prefix between clouds with Skyplane, supervised, in Skyplane's own environment.

Skyplane starts machines beside both buckets, sends the bytes between them, and ends the machines.
Its last release, 0.3.2, is not maintained, so nothing that it says is trusted: it runs in a process
group of its own, under a time limit and a limit on silence, its machines are ended by a second
process if the first did not confirm that, and the caller verifies what arrived and copies the rest.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from larder.config.access import DEFAULT_ACCESS, Access
from larder.config.urls import parse_url
from larder.errors import ConfigError, LarderError
from larder.progress import NullProgress, Progress
from larder.store.base import Readable
from larder.transfer.engines.choice import unsupported_by_skyplane
from larder.transfer.engines.skyplane_cost import check_cost, predict
from larder.transfer.engines.skyplane_process import default_python, not_set_up, private_home
from larder.transfer.engines.skyplane_supervise import (
    STAGE,
    SkyplaneLimits,
    SkyplaneReport,
    Supervisor,
)


@dataclass(frozen=True, slots=True)
class SkyplanePlace:
    """One side of the copy.

    Attributes:
        url: ``s3://bucket/prefix`` or ``gs://bucket/prefix``.
        store: The same place.
        region: The bucket's region, which the egress price is for; None if unknown.
        access: How it is reached.
    """

    url: str
    store: Readable
    region: str | None = None
    access: Access = DEFAULT_ACCESS


def skyplane_available(python: Path | None = None) -> bool:
    """Whether there is an environment for Skyplane; starts nothing."""
    with suppress(OSError):  # such as a directory that this user may not look into
        return (python or default_python()).expanduser().is_file()
    return False


def check_skyplane(
    source: SkyplanePlace,
    target: SkyplanePlace,
    *,
    limits: SkyplaneLimits,
    total_bytes: int,
    egress_usd_per_gb: float | None,
) -> None:
    """Refuse a transfer that Skyplane cannot make, or that may cost too much. Sends no request.

    Args:
        source: Where the objects are.
        target: Where they go.
        limits: See `SkyplaneLimits`.
        total_bytes: What will be copied.
        egress_usd_per_gb: What the provider of the source charges for 10^9 bytes; None if unknown.

    Raises:
        ConfigError: ``config.missing_package``: run ``make skyplane``; ``config.cost_limit``;
            ``config.invalid_value``: it cannot copy between these places.
    """
    if not skyplane_available(limits.python):
        raise not_set_up(limits.python or default_python(), "no such file")
    problem = unsupported_by_skyplane(
        source.store.features.place, target.store.features.place, source.access, target.access
    )
    schemes = (parse_url(source.url).scheme, parse_url(target.url).scheme)
    if "gs" in schemes and not _project(source, target):
        problem = "no Google Cloud project is named: set project, or GOOGLE_CLOUD_PROJECT"
    if problem:
        message, hint = f"Skyplane cannot make this copy: {problem}", "set copy.engine: native"
        raise ConfigError("config.invalid_value", message, where="cluster.copy", hint=hint)
    if limits.max_cost_usd is not None and egress_usd_per_gb is None:
        raise ConfigError(
            "config.cost_limit",
            "the price of this egress is unknown, so that max_cost_usd cannot be held",
            where="cluster.copy",
            hint="set the region of both locations, or leave out max_cost_usd",
        )
    cost = predict(
        schemes,
        total_bytes=total_bytes,
        egress_usd_per_gb=egress_usd_per_gb or 0.0,
        max_instances=limits.max_instances,
        most_seconds=limits.most_seconds,
    )
    check_cost(cost, limits.max_cost_usd)


def run_skyplane(
    source: SkyplanePlace,
    target: SkyplanePlace,
    *,
    limits: SkyplaneLimits,
    total_bytes: int,
    egress_usd_per_gb: float | None,
    keys: Iterable[str] | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> SkyplaneReport:
    """Transfer the objects below a prefix, as far as Skyplane can.

    A failed transfer is a result, not an error. Its objects appear below the target's prefix with
    the same relative keys. Empty objects, user metadata and most content types never arrive.

    Args:
        source: See `check_skyplane`, also for the next four.
        target: See there.
        limits: See there.
        total_bytes: See there.
        egress_usd_per_gb: See there.
        keys: Relative keys of the objects to transfer, in the order of their bytes; None for all.
        progress: Reports the bytes of stage `STAGE`; an error of it ends everything within seconds.
        say: Called with lines for the user.

    Raises:
        ConfigError: See `check_skyplane`; nothing was started.
        LarderError: Any error of ``progress``; the machines are ended in the background.
    """
    check_skyplane(
        source,
        target,
        limits=limits,
        total_bytes=total_bytes,
        egress_usd_per_gb=egress_usd_per_gb,
    )
    try:
        _check_buckets(source, target)
    except LarderError as error:
        return SkyplaneReport("failed", f"Skyplane was not started: {error}", 0, 0.0, 0.0, 0.0)
    progress = progress or NullProgress()
    progress.start(STAGE, bytes=total_bytes)
    home = private_home()
    try:
        request = _request(source, target, limits, _written(keys, home / "keys"))
    except BaseException:
        shutil.rmtree(home)
        raise
    extra = _extra_environment(source, target)
    supervisor = Supervisor(limits, home, request, extra, progress, say)
    report = supervisor.run(egress_usd_per_gb or 0.0)
    progress.finish(STAGE)
    return report


def _check_buckets(source: SkyplanePlace, target: SkyplanePlace) -> None:
    """Skyplane waits for ever if a bucket is missing, or nothing in it can be copied.

    Raises:
        LarderError: A bucket is missing or cannot be listed, or the source has no bytes.
    """
    next(iter(target.store.list()), None)
    if not any(info.size_bytes for page in source.store.list() for info in page):
        message = "no object in it has any bytes"
        raise ConfigError("config.empty_source", message, where=source.url)


def _written(keys: Iterable[str] | None, path: Path) -> Path | None:
    """The file with the keys, one JSON string a line, however many they are."""
    if keys is None:
        return None
    with open(path, "w", encoding="utf-8") as file:
        for key in keys:
            file.write(json.dumps(key) + "\n")
    return path


def _request(
    source: SkyplanePlace, target: SkyplanePlace, limits: SkyplaneLimits, keys: Path | None
) -> dict[str, Any]:
    return {
        "sweep": False,
        "source": _folder_url(source.url),
        "target": _folder_url(target.url),
        "expected_regions": [source.region or "", target.region or ""],
        "project": _project(source, target),
        "requester_pays": source.access.requester_pays,
        # Of its own for each run: the tag of the run's machines, also in the names of its keys.
        "client": secrets.token_hex(16),
        "max_instances": limits.max_instances,
        "timeout_seconds": limits.timeout_seconds,
        "stall_seconds": limits.stall_seconds,
        "keys": str(keys) if keys else None,
    }


def _project(source: SkyplanePlace, target: SkyplanePlace) -> str:
    """The Google Cloud project that the machines belong to; empty if none is named."""
    named = source.access.project or target.access.project
    return named or os.environ.get("GOOGLE_CLOUD_PROJECT", "")


def _folder_url(url: str) -> str:
    """With a slash at the end: otherwise the prefix of a sibling stops Skyplane for ever."""
    return url.rstrip("/") + "/"


def _extra_environment(source: SkyplanePlace, target: SkyplanePlace) -> dict[str, str]:
    extra = {}
    for place in (source, target):
        if place.access.profile:
            extra["AWS_PROFILE"] = place.access.profile
    if not any(place.url.startswith("gs://") for place in (source, target)):
        extra["NO_GCE_CHECK"] = "true"  # without it, looking for credentials takes minutes
    return extra
