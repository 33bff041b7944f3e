"""List the source, and look up whether it was prepared before."""

from __future__ import annotations

from pathlib import Path

from prefect import task

from larder.pipeline import survey as steps
from larder.pipeline.settings import Settings
from larder.pipeline.survey import Survey
from tasks._options import RETRIED, cancelled_when_stopped
from tasks._progress import current_progress

__all__ = ["note_inputs", "survey_source"]


@task(name="inventory", task_run_name="inventory of {settings.dataset.name}", **RETRIED)
@cancelled_when_stopped
def survey_source(settings: Settings, folder: Path) -> Survey:
    """Take the inventory of the source, into a private folder."""
    return steps.survey(settings.dataset, settings.cluster, folder, current_progress())


@task(name="reuse", task_run_name="reuse version {found.published.id}", **RETRIED)
@cancelled_when_stopped
def note_inputs(settings: Settings, found: Survey) -> None:
    """Remember what these inputs led to, and let the tag name it."""
    steps.note_inputs(settings.dataset, settings.cluster, found)
