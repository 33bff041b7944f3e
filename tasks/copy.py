"""Plan a copy, copy a batch of objects, and write the record of a copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import task

from larder.jobs.results import BatchReport, RunError
from larder.pipeline import copying, copying_end, copying_job
from larder.pipeline.copying_job import CopyJob
from larder.pipeline.copying_plan import CopyPlan
from larder.pipeline.copying_record import CopyDocument
from larder.pipeline.copying_settings import CopySettings
from larder.pipeline.job import CopyBatch
from larder.pipeline.route import SentAhead
from tasks._options import LOCAL, RETRIED, cancelled_when_stopped
from tasks.progress import current_progress


def batch_name(parameters: dict[str, Any]) -> str:
    """The name of a batch's task run, ``copy objects 2,001 to 2,411``, counted from 1."""
    batch: CopyBatch = parameters["batch"]
    first, last = batch.first_row + 1, batch.first_row + batch.rows
    return f"copy object {first:,}" if first == last else f"copy objects {first:,} to {last:,}"


@task(name="plan copy", task_run_name="plan of the copy", **RETRIED)
@cancelled_when_stopped
def checked_copy(settings: CopySettings, folder: Path) -> CopyPlan:
    """List the source and the storage, and plan what to copy."""
    return copying.checked_copy(settings, folder, progress=current_progress())


# Prefect's protocol for such a function has a class method that functions do not have.
@task(name="copy", task_run_name=batch_name, **RETRIED)  # type: ignore[arg-type]
@cancelled_when_stopped
def copy_objects(job: CopyJob, batch: CopyBatch, concurrent_batches: int) -> BatchReport:
    """Copy and verify the objects of one batch."""
    report = copying_job.copy_objects(
        job, batch, progress=current_progress(), concurrent_batches=concurrent_batches
    )
    RunError.unless_clean("mirror", report)
    return report


@task(name="send ahead", task_run_name="skyplane", **LOCAL)
@cancelled_when_stopped
def send_ahead(job: CopyJob) -> SentAhead:
    """Let an engine that copies everything at once go before the batches."""
    return copying_job.send_ahead(job, progress=current_progress())


@task(name="record", task_run_name="record of the copy", **RETRIED)
@cancelled_when_stopped
def end_copy(plan: CopyPlan, job: CopyJob | None, report: BatchReport) -> CopyDocument:
    """Write down every verified copy, and what failed."""
    return copying_end.end_copy(plan, job, report, progress=current_progress())
