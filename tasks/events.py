"""Tells Prefect that a version was published, for automations that react to it."""

from __future__ import annotations

from prefect.events import emit_event

from larder.growth.compare import Changes
from larder.pipeline.settings import Settings
from larder.versions.runs import RunRecord
from tasks.artifacts import versions_table

PUBLISHED = "larder.version.published"
GROWN = "larder.dataset.grown"
GROWN_PERCENT = 20
"""A dataset whose number of samples grows by more than this has grown."""


def recorded(result: tuple[Settings, RunRecord]) -> None:
    """Emit the events of a run, if it has published a version, and make the table of versions."""
    settings, record = result
    if record.published:
        _emit(record)
    versions_table(settings)


def _emit(record: RunRecord) -> None:
    growth_percent = Changes(**record.changes).growth_percent
    resource = {
        "prefect.resource.id": f"larder.dataset.{record.dataset}",
        "prefect.resource.name": record.dataset,
        "larder.version": record.version,
    }
    payload = {"changes": dict(record.changes), "growth_percent": round(growth_percent, 1)}
    for event in (PUBLISHED, *([GROWN] if growth_percent > GROWN_PERCENT else [])):
        emit_event(event, resource, payload=payload)
