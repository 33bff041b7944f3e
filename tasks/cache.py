"""Build the LMDB cache of one split."""

from __future__ import annotations

from prefect import task

from larder.pipeline import cache
from larder.pipeline.job import Job
from larder.versions.documents import CacheFile
from tasks._options import RETRIED, cancelled_when_stopped
from tasks.progress import current_progress


@task(name="cache", task_run_name="cache of {batch.split}", **RETRIED)
@cancelled_when_stopped
def cache_split(job: Job, batch: cache.CacheBatch, concurrent_batches: int) -> CacheFile:
    """Build, verify and store the cache file of one split."""
    return cache.cache_split(
        job, batch, progress=current_progress(), concurrent_batches=concurrent_batches
    )
