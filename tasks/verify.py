"""Read a version again in batches, and repair what is damaged."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from prefect import task

from larder.verify import aside, inspection, reading, repair
from larder.verify.aside import Repair
from larder.verify.findings import Finding, Verified
from larder.verify.job import Inspected, VerifyBatch, VerifyJob
from tasks._options import RETRIED, cancelled_when_stopped
from tasks.progress import current_progress


@task(name="inspect version", task_run_name="documents of {job.version}", **RETRIED)
@cancelled_when_stopped
def inspect_version(job: VerifyJob) -> tuple[Inspected, tuple[Finding, ...]]:
    """Check tags, documents and manifests, and divide shards and caches into batches."""
    return inspection.inspect_version(job, progress=current_progress())


@task(name="verify", task_run_name="verify {batch.name}", **RETRIED)
@cancelled_when_stopped
def verify_batch(job: VerifyJob, batch: VerifyBatch, concurrent_batches: int) -> Verified:
    """Read the shards of one batch, or a cache file."""
    return reading.verify_batch(
        job, batch, progress=current_progress(), concurrent_batches=concurrent_batches
    )


@task(name="set aside", task_run_name="damaged files are moved aside", **RETRIED)
@cancelled_when_stopped
def set_aside(job: VerifyJob, run: str, paths: Sequence[str]) -> list[Repair]:
    """Move damaged files aside."""
    return aside.set_aside(job, run, paths, progress=current_progress())


@task(name="repair documents", task_run_name="repair of documents and manifests", **RETRIED)
@cancelled_when_stopped
def repair_small(job: VerifyJob, inspected: Inspected, paths: Sequence[str]) -> list[Repair]:
    """Make documents and manifests again."""
    return repair.repair_small(job, inspected, paths, progress=current_progress())


@task(name="repair", task_run_name="repair of {batch.name}", **RETRIED)
@cancelled_when_stopped
def repair_large(job: VerifyJob, batch: VerifyBatch, concurrent_batches: int) -> list[Repair]:
    """Make shards or a cache file again."""
    return repair.repair_large(
        job, batch, progress=current_progress(), concurrent_batches=concurrent_batches
    )


@task(name="name version", task_run_name="latest names {job.version}", **RETRIED)
@cancelled_when_stopped
def name_version(job: VerifyJob) -> Repair:
    """Set a lost tag as the user has chosen."""
    return repair.name_version(job, progress=current_progress())


@task(name="put back", task_run_name="what was not repaired is moved back", **RETRIED)
@cancelled_when_stopped
def put_back(job: VerifyJob) -> None:
    """Move back what is aside wherever its place is free."""
    aside.put_back(job, progress=current_progress())


@task(name="end repair", task_run_name="end of the repair", **RETRIED)
@cancelled_when_stopped
def end_repair(job: VerifyJob, left: Collection[str]) -> list[str]:
    """Delete what was moved aside."""
    return aside.end_repair(job, left, progress=current_progress())
