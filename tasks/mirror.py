"""Copy a batch of objects to the local side."""

from __future__ import annotations

from prefect import task

from larder.pipeline import mirror
from larder.pipeline.job import Job, MirrorRefs, RowRange
from larder.pipeline.results import BatchReport, RunError
from tasks._options import RETRIED, cancelled_when_stopped
from tasks._progress import current_progress

__all__ = ["mirror_batch", "seal_mirror"]


@task(name="mirror", task_run_name="mirror {batch.rows} objects from {batch.first_row}", **RETRIED)
@cancelled_when_stopped
def mirror_batch(job: Job, batch: RowRange, beside: int) -> BatchReport:
    """Copy and verify the objects of one batch.

    Raises:
        RunError: Some could not be copied; the others were.
    """
    report = mirror.mirror_batch(job, batch, progress=current_progress(), beside=beside)
    RunError.unless_clean("mirror", report)
    return report


@task(name="seal mirror", task_run_name="manifests of the mirror", **RETRIED)
@cancelled_when_stopped
def seal_mirror(job: Job) -> MirrorRefs | None:
    """The manifests of everything mirrored."""
    return mirror.seal_mirror(job, progress=current_progress())
