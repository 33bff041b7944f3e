"""Which engine copies what is due: the same answer for the plan and for the run."""

from __future__ import annotations

from pathlib import Path

from larder.config.models import Copy, Location
from larder.pipeline.results import Totals
from larder.store.base import Readable
from larder.transfer.engines.choice import Choice, choose_engine
from larder.transfer.engines.skyplane import skyplane_available

__all__ = ["chosen_engine"]


def chosen_engine(
    source_at: Location,
    storage_at: Location,
    copy: Copy,
    copies: Totals,
    *,
    source: Readable,
    storage: Readable,
) -> Choice:
    """Choose the engine of a copy; see `larder.transfer.engines.choice.choose_engine`.

    Args:
        source_at: The source, as configured.
        storage_at: The storage, as configured.
        copy: How objects are copied.
        copies: The objects to copy.
        source: The source's store; no request is sent.
        storage: The storage's.
    """
    python = Path(copy.skyplane.python) if copy.skyplane.python else None
    return choose_engine(
        source.features.place,
        storage.features.place,
        total_bytes=copies.bytes,
        configured=copy.engine,
        min_bytes=copy.skyplane.min_bytes,
        available=skyplane_available(python),
        source_access=source_at.access,
        target_access=storage_at.access,
    )
