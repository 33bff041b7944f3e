"""Publish a version whose segment is whole."""

from __future__ import annotations

from prefect import task

from larder.pipeline import publish as steps
from larder.pipeline.job import Job
from larder.versions.documents import VersionDocument
from tasks._options import RETRIED, cancelled_when_stopped
from tasks._progress import current_progress

__all__ = ["publish", "publish_existing"]


@task(name="publish", task_run_name="publish version {job.version}", **RETRIED)
@cancelled_when_stopped
def publish(job: Job) -> VersionDocument:
    """Write version.json, and let the tag name it."""
    return steps.publish(job, progress=current_progress())


@task(name="publish again", task_run_name="publish version {job.version}", **RETRIED)
@cancelled_when_stopped
def publish_existing(job: Job) -> VersionDocument:
    """Publish the version of a segment that was whole before."""
    return steps.publish_existing(job, progress=current_progress())
