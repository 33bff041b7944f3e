"""Plan a prune, and delete what it says."""

from __future__ import annotations

from pathlib import Path

from prefect import task

from larder.pipeline import pruning
from larder.pipeline.pruning import Pruned, PrunePlan, PruneSettings
from tasks._options import RETRIED, cancelled_when_stopped
from tasks.progress import current_progress


@task(name="plan prune", task_run_name="plan of the prune", **RETRIED)
@cancelled_when_stopped
def plan_prune(settings: PruneSettings, folder: Path) -> PrunePlan:
    """List the source and the storage, and plan what to delete."""
    return pruning.plan_prune(settings, folder, progress=current_progress())


@task(name="prune", task_run_name="prune what is gone", **RETRIED)
@cancelled_when_stopped
def prune_objects(plan: PrunePlan) -> Pruned:
    """Delete what is planned, each object only if it is still as it was listed."""
    return pruning.prune_objects(plan, progress=current_progress())
