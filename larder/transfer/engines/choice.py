"""Which engine copies, and why. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from larder.config.access import DEFAULT_ACCESS, Access
from larder.store.base import Place
from larder.units import format_bytes


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine and the reason for it.

    Attributes:
        engine: ``native`` or ``skyplane``.
        reason: A clause, without a full stop.
    """

    engine: str
    reason: str


def choose_engine(
    source: Place | None,
    target: Place | None,
    *,
    total_bytes: int,
    configured: str,
    min_bytes: int,
    available: bool,
    source_access: Access = DEFAULT_ACCESS,
    target_access: Access = DEFAULT_ACCESS,
) -> Choice:
    """Choose the engine of a copy.

    ``auto`` takes Skyplane only where it can pay: between two providers, where no server copies for
    us, and from ``min_bytes`` on, because its machines need minutes to start. Within S3 and within
    GCS the servers copy by themselves, also between regions, at the same price for egress.

    Args:
        source: Where the objects are; None if unknown.
        target: Where they go.
        total_bytes: What has to be copied.
        configured: ``copy.engine``: ``auto``, ``native`` or ``skyplane``.
        min_bytes: ``copy.skyplane.min_bytes``.
        available: Whether Skyplane's environment exists.
        source_access: How the source is reached.
        target_access: How the target is reached.
    """
    problem = unsupported_by_skyplane(source, target, source_access, target_access)
    if configured == "native":
        return Choice("native", "copy.engine is native")
    if configured == "skyplane":
        if problem:
            return Choice("native", f"Skyplane cannot make this copy: {problem}")
        return Choice("skyplane", "copy.engine is skyplane")
    if source is not None and target is not None and source.provider == target.provider:
        return Choice("native", "both sides are at one provider")
    return _automatic(problem, total_bytes, min_bytes, available)


def _automatic(problem: str, total_bytes: int, min_bytes: int, available: bool) -> Choice:
    """The choice between two providers."""
    if problem:
        return Choice("native", problem)
    there, least = format_bytes(total_bytes), format_bytes(min_bytes)
    if total_bytes < min_bytes:
        return Choice("native", f"{there} is less than copy.skyplane.min_bytes, {least}")
    if not available:
        return Choice("native", "Skyplane is not set up; `make skyplane` does that")
    return Choice("skyplane", f"{there} between two providers")


def unsupported_by_skyplane(
    source: Place | None, target: Place | None, source_access: Access, target_access: Access
) -> str:
    """Why Skyplane cannot copy between two places, as a clause; empty if it can."""
    for side, place, access in (
        ("source", source, source_access),
        ("storage", target, target_access),
    ):
        if problem := _problem(place, access):
            return f"the {side} {problem}"
    if target_access.kms_key:
        return "the storage has a kms_key, which Skyplane cannot write with"
    if target_access.requester_pays:
        return "the storage has requester_pays, which Skyplane has only for a source in S3"
    if source_access.requester_pays and (source is None or source.provider != "s3"):
        return "the source has requester_pays, which Skyplane has only for S3"
    profiles = {
        access.profile
        for place, access in ((source, source_access), (target, target_access))
        if place is not None and place.provider == "s3"
    }
    if len(profiles) > 1:
        return "the two sides have different profiles, and Skyplane uses one for both"
    return ""


def _problem(place: Place | None, access: Access) -> str:
    if place is None or place.provider not in ("s3", "gs"):
        return "is not a bucket of S3 or GCS"
    if place.server:
        return f"is at {place.server}, which Skyplane's machines may not reach"
    if access.anonymous:
        return "is anonymous, and Skyplane signs every request"
    if access.role or access.block:
        return "has a role or a block of its own, and Skyplane's machines have their own role"
    return ""
