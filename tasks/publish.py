"""Publish a version whose segment is complete."""

from __future__ import annotations

from prefect import task

from larder.pipeline import publish as steps
from larder.pipeline.index import Index
from larder.pipeline.job import Job
from larder.versions.documents import CacheFile, VersionDocument
from tasks._options import RETRIED, cancelled_when_stopped
from tasks.progress import current_progress


@task(name="publish", task_run_name="publish version {job.version}", **RETRIED)
@cancelled_when_stopped
def publish(job: Job, index: Index | None, cache: tuple[CacheFile, ...]) -> VersionDocument:
    """Write segment.json, cache.json and version.json, and move the tag to the version."""
    return steps.publish(job, index, cache, progress=current_progress())


@task(name="publish again", task_run_name="publish version {job.version}", **RETRIED)
@cancelled_when_stopped
def publish_existing(job: Job) -> VersionDocument:
    """Publish the version of a segment that was already complete."""
    return steps.publish_existing(job, progress=current_progress())
