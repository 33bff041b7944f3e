"""Copy a batch of objects to the local side."""

from __future__ import annotations

from prefect import task

from larder.pipeline import mirror
from larder.pipeline.job import Job, MirrorRefs, RowRange
from larder.pipeline.results import BatchReport
from tasks._options import RETRIED
from tasks._progress import current_progress

__all__ = ["mirror_batch", "seal_mirror"]


@task(name="mirror", task_run_name="mirror {batch.rows} objects from {batch.first_row}", **RETRIED)
def mirror_batch(job: Job, batch: RowRange, beside: int) -> BatchReport:
    """Copy and verify the objects of one batch."""
    return mirror.mirror_batch(job, batch, progress=current_progress(), beside=beside)


@task(name="seal mirror", task_run_name="manifests of the mirror", **RETRIED)
def seal_mirror(job: Job) -> MirrorRefs | None:
    """The manifests of everything mirrored."""
    return mirror.seal_mirror(job, progress=current_progress())
