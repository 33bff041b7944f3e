"""List the source, and look up whether it was prepared before."""

from __future__ import annotations

from pathlib import Path

from prefect import task

from larder.pipeline import source
from larder.pipeline.settings import Settings
from larder.pipeline.source import SourceState
from tasks._options import RETRIED, cancelled_when_stopped
from tasks.progress import current_progress


@task(name="inventory", task_run_name="inventory of {settings.dataset.name}", **RETRIED)
@cancelled_when_stopped
def inspect_source(
    settings: Settings, folder: Path, own: str | None = None, plan_only: bool = False
) -> SourceState:
    """Take the inventory of the source, into a private folder."""
    return source.inspect_source(settings, folder, own, plan_only, progress=current_progress())
