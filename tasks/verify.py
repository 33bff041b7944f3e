"""Read a version again in batches, and repair what is damaged."""

from __future__ import annotations

from collections.abc import Sequence

from prefect import task

from larder.pipeline import (
    repairing,
    repairing_caches,
    repairing_shards,
    verifying_batch,
    verifying_documents,
)
from larder.pipeline.findings import Finding, Verified
from larder.pipeline.repairing_files import Repair
from larder.pipeline.verifying_job import Inspected, VerifyBatch, VerifyJob
from tasks._options import RETRIED, cancelled_when_stopped
from tasks._progress import current_progress

__all__ = [
    "end_repair",
    "inspect_version",
    "keep_right",
    "repair_cache",
    "repair_shards",
    "repair_small",
    "verify_batch",
]


@task(name="inspect version", task_run_name="documents of {job.version}", **RETRIED)
@cancelled_when_stopped
def inspect_version(job: VerifyJob) -> tuple[Inspected, tuple[Finding, ...]]:
    """Check tags, documents and manifests, and divide shards and caches into batches."""
    return verifying_documents.inspect_version(job, progress=current_progress())


@task(name="verify", task_run_name="verify {batch.name}", **RETRIED)
@cancelled_when_stopped
def verify_batch(job: VerifyJob, batch: VerifyBatch, concurrent_batches: int) -> Verified:
    """Read the shards of one batch, or a cache file."""
    return verifying_batch.verify_batch(
        job, batch, progress=current_progress(), concurrent_batches=concurrent_batches
    )


@task(name="repair documents", task_run_name="repair of documents and manifests", **RETRIED)
@cancelled_when_stopped
def repair_small(
    job: VerifyJob, inspected: Inspected, findings: Sequence[Finding], trial: bool
) -> list[Repair]:
    """Restore documents and manifests, each to its bytes of before."""
    return repairing.repair_small(job, inspected, findings, trial, progress=current_progress())


@task(name="keep aside", task_run_name="copies of exchanged files", **RETRIED)
@cancelled_when_stopped
def keep_right(job: VerifyJob, kept: Sequence[tuple[str, int, str]]) -> None:
    """Keep files that are about to be replaced and have the right content of others."""
    repairing.keep_right(job, kept, progress=current_progress())


@task(name="repair shards", task_run_name="repair from {batch.name}", **RETRIED)
@cancelled_when_stopped
def repair_shards(
    job: VerifyJob, batch: repairing_shards.ShardRepairs, concurrent_batches: int
) -> tuple[Repair, ...]:
    """Make damaged shards again from the parts that are still somewhere."""
    return repairing_shards.repair_shards(
        job, batch, progress=current_progress(), concurrent_batches=concurrent_batches
    )


@task(name="repair cache", task_run_name="repair of {batch.file.path}", **RETRIED)
@cancelled_when_stopped
def repair_cache(
    job: VerifyJob, batch: repairing_caches.CacheRepair, concurrent_batches: int
) -> tuple[Repair, ...]:
    """Build a damaged cache file again from its shards."""
    return repairing_caches.repair_cache(
        job, batch, progress=current_progress(), concurrent_batches=concurrent_batches
    )


@task(name="end repair", task_run_name="end of the repair", **RETRIED)
@cancelled_when_stopped
def end_repair(job: VerifyJob) -> None:
    """Delete what was kept aside."""
    repairing.end_repair(job, progress=current_progress())
