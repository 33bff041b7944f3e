"""Shows, adds and drops leases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from larder.catalog.place import Place
from larder.errors import ConfigError, printable
from larder.manifest.digest import sha256_hex
from larder.units import format_time
from larder.versions import layout
from larder.versions.find import find_version
from larder.versions.leases import (
    CONFIG_DAYS,
    MAX_DAYS,
    Claim,
    Lease,
    NamedLease,
    drop_lease,
    read_leases,
)


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """What is done with leases: a ``version`` gets one, some are dropped, or all are shown."""

    place: Place
    version: str | None = None
    holder: str | None = None
    days: int = CONFIG_DAYS
    drop: Sequence[str] = ()


def lease(settings: LeaseSettings) -> dict[str, Any]:
    """Add or drop leases; returns the JSON document, with those that there are then.

    Refused: ``version.missing`` and ``version.ambiguous``, of names; ``version.cleaned``: the
    version is being deleted.
    """
    _check(settings)
    root = settings.place.open()
    for name in settings.drop:
        drop_lease(root, name)
    if settings.version is not None and settings.holder is not None:
        version = find_version(root, settings.place.dataset, settings.version)
        name = f"user-{sha256_hex(f'{version} {settings.holder}'.encode())[:16]}"
        given = Lease(settings.holder, settings.days, (version,))
        Claim(given, (layout.version_key(version),), name).take(root)
    leases = [_fields(each) for each in read_leases(root)]
    return {"dataset": settings.place.dataset, "storage": root.url, "leases": leases}


def _check(settings: LeaseSettings) -> None:
    message = ""
    if (settings.version is None) != (settings.holder is None):
        message = "a lease is of a version, and for somebody"
    elif settings.drop and settings.version is not None:
        message = "a lease is added or dropped, not both"
    elif not 1 <= settings.days <= MAX_DAYS:
        message = f"--days is from 1 to {MAX_DAYS:,}"
    if message:
        hint = "larder lease DATASET VERSION --for WHO [--days N], or DATASET --drop NAME"
        raise ConfigError("config.invalid_flag", message, hint=hint)


def _fields(each: NamedLease) -> dict[str, Any]:
    return {
        "name": each.name,
        "holder": each.lease.holder,
        "until": format_time(each.until_us),
        "versions": list(each.lease.versions),
        "segments": list(each.lease.segments),
    }


def lease_lines(document: Mapping[str, Any]) -> list[str]:
    """The document for people."""
    leases = document["leases"]
    if not leases:
        return [f"{document['storage']} has no leases"]
    return [
        f"{each['name']}  until {each['until']}  for {printable(each['holder'])}:"
        f" {', '.join(each['versions'])}"
        for each in leases
    ]
