"""Plan the run, and refuse plans that must not be executed."""

from __future__ import annotations

from pathlib import Path

from prefect import task

from larder.pipeline import plan_checks as refusals
from larder.pipeline.plan import Plan
from larder.pipeline.source import SourceState
from tasks._options import RETRIED, cancelled_when_stopped
from tasks.progress import current_progress


@task(name="plan", task_run_name="plan {found.dataset.name}", **RETRIED)
@cancelled_when_stopped
def checked_plan(found: SourceState, folder: Path) -> Plan:
    """Make and check the plan."""
    return refusals.checked_plan(found, folder, progress=current_progress())
