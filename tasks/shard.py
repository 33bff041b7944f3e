"""Write a batch of shards, and the index over all of them."""

from __future__ import annotations

from prefect import task

from larder.jobs.results import BatchReport, RunError
from larder.pipeline import index, shard
from larder.pipeline.job import Job
from tasks._options import RETRIED, cancelled_when_stopped
from tasks.progress import current_progress


@task(name="shard", task_run_name="shards from {batch.shards[0].name}", **RETRIED)
@cancelled_when_stopped
def shard_batch(job: Job, batch: shard.PackBatch, concurrent_batches: int) -> BatchReport:
    """Pack and write the shards of one batch."""
    report = shard.shard_batch(
        job, batch, progress=current_progress(), concurrent_batches=concurrent_batches
    )
    RunError.unless_clean("shard", report)
    return report


@task(name="index", task_run_name="index of the shards", **RETRIED)
@cancelled_when_stopped
def index_shards(job: Job) -> index.Index:
    """Write the manifests of samples and shards."""
    return index.index_shards(job, progress=current_progress())
