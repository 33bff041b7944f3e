"""Shows, adds and drops leases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from larder.catalog.stored_dataset import StoredDataset
from larder.errors import ConfigError, printable
from larder.manifest.digest import sha256_hex
from larder.units import format_time
from larder.versions import layout
from larder.versions.leases import (
    CONFIG_DAYS,
    MAX_DAYS,
    Claim,
    Lease,
    NamedLease,
    drop_lease,
    read_leases,
)
from larder.versions.tags import find_version


def lease(
    place: StoredDataset,
    version: str | None = None,
    holder: str | None = None,
    days: int = CONFIG_DAYS,
    drop: Sequence[str] = (),
) -> dict[str, Any]:
    """Give a ``version`` a lease, drop leases, or show all; returns a JSON document of all.

    Refused: ``version.missing``, ``version.ambiguous``; ``version.cleaned``: the version is being
    deleted.
    """
    adds = version is not None
    if adds != (holder is not None) or (adds and drop) or not 1 <= days <= MAX_DAYS:
        message = f"a lease has a version, a holder and 1 to {MAX_DAYS:,} days, or is dropped"
        hint = "larder lease DATASET VERSION --for WHO [--days N], or DATASET --drop NAME"
        raise ConfigError("config.invalid_flag", message, hint=hint)
    root = place.open()
    for name in drop:
        drop_lease(root, name)
    if version is not None and holder is not None:
        id_ = find_version(root, place.dataset, version)
        name = f"user-{sha256_hex(f'{id_} {holder}'.encode())[:16]}"
        Claim(Lease(holder, days, (id_,)), (layout.version_key(id_),), name).take(root)
    leases = [_fields(each) for each in read_leases(root)]
    return {"dataset": place.dataset, "storage": root.url, "leases": leases}


def _fields(each: NamedLease) -> dict[str, Any]:
    return {
        "name": each.name,
        "holder": each.lease.holder,
        "until": format_time(each.until_us),
        "versions": list(each.lease.versions),
        "segments": list(each.lease.segments),
    }


def lease_lines(document: Mapping[str, Any]) -> list[str]:
    leases = document["leases"]
    if not leases:
        return [f"{document['storage']} has no leases"]
    return [
        f"{each['name']}  until {each['until']}  for {printable(each['holder'])}:"
        f" {', '.join(each['versions'])}"
        for each in leases
    ]
