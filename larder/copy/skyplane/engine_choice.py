"""Chooses the engine of a copy. Pure, except for a look for Skyplane."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from larder.config.models.copy_config import CopyConfig, Skyplane
from larder.config.urls import Access
from larder.store.base import BucketPrefix, Readable
from larder.units import format_bytes

_CHECKOUT = Path(__file__).parents[3]


class CopyEnd(NamedTuple):
    """One end of a copy: a location, and the store in it."""

    url: str
    store: Readable
    access: Access

    @property
    def place(self) -> BucketPrefix | None:
        return self.store.features.place


class EngineChoice(NamedTuple):
    """An engine and the reason for it, a clause without a full stop."""

    engine: str
    reason: str


def choose_engine(
    source: CopyEnd, target: CopyEnd, *, limits: CopyConfig, total_bytes: int, available: bool
) -> EngineChoice:
    """Choose the engine of a copy.

    ``auto`` takes Skyplane only between two providers, as within one the servers copy, and from
    ``min_bytes`` on, because its machines need minutes to start.
    """
    if limits.engine == "native":
        return EngineChoice("native", "copy.engine is native")
    problem = unsupported(source, target)
    if limits.engine == "skyplane":
        if problem:
            return EngineChoice("native", f"Skyplane cannot make this copy: {problem}")
        return EngineChoice("skyplane", "copy.engine is skyplane")
    size, min_bytes = format_bytes(total_bytes), limits.skyplane.min_bytes
    if source.place and target.place and source.place.provider == target.place.provider:
        problem = "both sides are at one provider"
    elif not problem and total_bytes < min_bytes:
        problem = f"{size} is less than copy.skyplane.min_bytes, {format_bytes(min_bytes)}"
    elif not problem and not available:
        problem = "Skyplane is not set up; `make skyplane` does that"
    if problem:
        return EngineChoice("native", problem)
    return EngineChoice("skyplane", f"{size} between two providers")


def unsupported(source: CopyEnd, target: CopyEnd) -> str:
    """Return why Skyplane cannot copy between two places; empty if it can."""
    for name, side in (("source", source), ("storage", target)):
        if problem := _problem(side.place, side.access):
            return f"the {name} {problem}"
    if target.access.kms_key:
        return "the storage has a kms_key, which Skyplane cannot write with"
    if target.access.requester_pays:
        return "the storage has requester_pays, which Skyplane has only for a source in S3"
    s3 = [side for side in (source, target) if side.place and side.place.provider == "s3"]
    if source.access.requester_pays and source not in s3:
        return "the source has requester_pays, which Skyplane has only for S3"
    if len({side.access.profile for side in s3}) > 1:
        return "the two sides have different profiles, and Skyplane uses one for both"
    return ""


def _problem(place: BucketPrefix | None, access: Access) -> str:
    if place is None or place.provider not in ("s3", "gs"):
        return "is not a bucket of S3 or GCS"
    if place.server:
        return f"is at {place.server}, which Skyplane's machines may not reach"
    if access.anonymous:
        return "is anonymous, and Skyplane signs every request"
    if access.role or access.block:
        return "has a role or a block of its own, and Skyplane's machines have their own role"
    return ""


def skyplane_python(limits: Skyplane) -> Path:
    """Return the configured Python of Skyplane, or else ``make skyplane``'s."""
    if limits.python is None:
        return _CHECKOUT / ".venv-skyplane" / "bin" / "python"
    return Path(limits.python).expanduser()


def skyplane_available(limits: Skyplane) -> bool:
    with suppress(OSError):  # such as a directory that this user may not look into
        return skyplane_python(limits).is_file()
    return False
