"""Plan the run, refuse what must not be done, and put the plan where every task finds it."""

from __future__ import annotations

from pathlib import Path

from prefect import task

from larder.pipeline.inline import checked_plan
from larder.pipeline.plan import Plan
from larder.pipeline.settings import Settings
from larder.pipeline.source import SourceState
from tasks._options import RETRIED, cancelled_when_stopped
from tasks._progress import current_progress

__all__ = ["plan_run"]


@task(name="plan", task_run_name="plan {settings.dataset.name}", **RETRIED)
@cancelled_when_stopped
def plan_run(settings: Settings, found: SourceState, folder: Path) -> Plan:
    """Make and check the plan."""
    return checked_plan(settings, found, folder, current_progress())
