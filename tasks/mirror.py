"""Copy a batch of objects to the storage."""

from __future__ import annotations

from typing import Any

from prefect import task

from larder.jobs.results import BatchReport, RunError, Totals
from larder.pipeline import mirror
from larder.pipeline.job import CopyBatch, Job
from larder.pipeline.route import SentAhead
from tasks._options import LOCAL, RETRIED, cancelled_when_stopped
from tasks.progress import current_progress


def batch_name(parameters: dict[str, Any]) -> str:
    """The name of a batch's task run, ``mirror samples 2,001 to 2,411``, counted from 1."""
    batch: CopyBatch = parameters["batch"]
    first, last = batch.first_row + 1, batch.first_row + batch.rows
    return f"mirror sample {first:,}" if first == last else f"mirror samples {first:,} to {last:,}"


@task(name="send ahead", task_run_name="skyplane", **LOCAL)
@cancelled_when_stopped
def send_mirror_ahead(job: Job, copies: Totals) -> SentAhead:
    """Let an engine that copies everything at once go before the batches."""
    return mirror.send_mirror_ahead(job, copies, progress=current_progress())


# Prefect's protocol for such a function has a class method that functions do not have.
@task(name="mirror", task_run_name=batch_name, **RETRIED)  # type: ignore[arg-type]
@cancelled_when_stopped
def mirror_batch(job: Job, batch: CopyBatch, concurrent_batches: int) -> BatchReport:
    """Copy and verify the objects of one batch."""
    report = mirror.mirror_batch(
        job, batch, progress=current_progress(), concurrent_batches=concurrent_batches
    )
    RunError.unless_clean("mirror", report)
    return report
