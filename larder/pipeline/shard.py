"""The shard step: batches of shards with receipts, and the index over all of them.

A receipt is a document per finished batch, written after the batch's shards and rows. A rerun
reads the receipts, sees which shards stand, and makes the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from larder.errors import Failure
from larder.manifest.files import ManifestWriter, read_manifest
from larder.manifest.schemas import ARRANGEMENT
from larder.pipeline.job import (
    Job,
    Ref,
    fetch_manifest,
    listed,
    opened,
    opened_root,
    opened_source,
    put_named,
    scratch,
)
from larder.pipeline.plan import planned_shards
from larder.pipeline.results import SHOWN_FAILURES, BatchReport, Count
from larder.progress import Progress
from larder.shards.build import build_shard
from larder.shards.model import ROWS, Sample, ShardBatch, ShardResult, read_samples
from larder.shards.packing import batch_shards
from larder.shards.readahead import open_reads
from larder.store import object_url
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import seal, unseal

__all__ = ["Receipt", "read_receipts", "shard_batch", "shard_batches"]


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard that stands: ``bytes`` is 0 for one that no sample was left for."""

    split: str
    name: str
    bytes: int
    samples: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """A finished batch of shards.

    Attributes:
        shards: In the order of the plan.
        rows: Manifest of schema ROWS: the samples of all of them, one after the other.
        omitted: Samples that were left out: the first by name.
        omitted_count: How many there were.
    """

    shards: tuple[Shard, ...]
    rows: Ref
    omitted: tuple[Failure, ...]
    omitted_count: int


def read_receipts(root: Store, segment: str) -> Iterator[Receipt]:
    """The receipts of a segment's finished batches."""
    prefix = f"{layout.work_prefix(segment)}shards/"
    for info in listed(root, prefix):
        if info.key.endswith(".json"):
            plain = unseal(bytes(root.get(info.key)), object_url(root.url, info.key))
            yield Receipt(
                shards=tuple(Shard(**shard) for shard in plain["shards"]),
                rows=Ref(**plain["rows"]),
                omitted=tuple(Failure(**failure) for failure in plain["omitted"]),
                omitted_count=plain["omitted_count"],
            )


def shard_batches(job: Job) -> tuple[list[ShardBatch], Count]:
    """The shards to make, in batches of about ``runner.batch_bytes``, and those that stand."""
    if job.whole:
        return [], Count()
    with opened_root(job) as root:
        done = _standing(root, job)
        path = fetch_manifest(root, job.shard_plan)
    missing = (plan for plan in planned_shards(path) if (plan.split, plan.name) not in done)
    standing = sum((Count(1, size_bytes) for size_bytes in done.values() if size_bytes), Count())
    return batch_shards(missing, job.cluster.runner.batch_bytes), standing


def _standing(root: Store, job: Job) -> dict[tuple[str, str], int]:
    """Bytes of the shards that have a receipt and whose objects are as long as it says."""
    prefix = f"{layout.segment_prefix(job.segment)}shards/"
    sizes = {info.key.removeprefix(prefix): info.size_bytes for info in listed(root, prefix)}
    return {
        (shard.split, shard.name): shard.bytes
        for receipt in read_receipts(root, job.segment)
        for shard in receipt.shards
        if shard.bytes == sizes.get(f"{shard.split}/{shard.name}", 0)
    }


def shard_batch(job: Job, batch: ShardBatch, *, progress: Progress, beside: int = 1) -> BatchReport:
    """Make the shards of one batch and leave a receipt.

    Args:
        job: The run.
        batch: What to make.
        progress: Told of stage ``shard``.
        beside: Batches that run at once and share ``copy.concurrency`` and ``copy.memory_bytes``.

    Returns:
        A report; with failures, the shards that failed were not written and there is no receipt.

    Raises:
        StoreError: A store refuses everything.
        RetryableError: A store went on failing.
    """
    limits = job.cluster.copy_
    concurrency = max(1, limits.concurrency // beside)
    memory_bytes = max(1, limits.memory_bytes // beside)
    results: list[ShardResult] = []
    with (
        opened_root(job) as root,
        _reading(job) as source,
        open_reads(concurrency, memory_bytes) as reads,
    ):
        samples = _samples(job, root, batch)
        for plan in batch.shards:
            writer = root.writer(layout.shard_key(job.segment, plan.split, plan.name))
            # A failed shard may leave samples unread; each shard takes exactly its own.
            own = list(islice(samples, plan.rows))
            results.append(
                build_shard(
                    plan,
                    own,
                    source,
                    writer,
                    reads,
                    validate=job.dataset.validation,
                    on_bad_sample=job.dataset.on_bad_sample,
                    progress=progress,
                )
            )
        failures = tuple(chain.from_iterable(result.failures for result in results))
        if not failures:
            _leave_receipt(root, job, batch, results)
    done = Count(sum(result.written for result in results), sum(result.bytes for result in results))
    return BatchReport(done=done, failures=failures[:SHOWN_FAILURES], failed=len(failures))


def _reading(job: Job) -> Any:
    """What the samples are read from: the mirror if there is one, else the source."""
    if job.copies is None:
        return opened_source(job)
    return opened(job.cluster.local, object_url(job.root, layout.mirror_prefix()))


def _samples(job: Job, root: Store, batch: ShardBatch) -> Iterator[Sample]:
    path = fetch_manifest(root, job.arrangement)
    rows = read_manifest(path, ARRANGEMENT, first_row=batch.first_row, rows=batch.rows)
    samples = read_samples(rows)
    if job.copies is None:
        return samples
    # The etags are the source's; what the mirror gave is held against its checksums by the index.
    return (
        sample._replace(parts=tuple(part._replace(etag="") for part in sample.parts))
        for sample in samples
    )


def _leave_receipt(
    root: Store, job: Job, batch: ShardBatch, results: Iterable[ShardResult]
) -> None:
    name = f"{layout.work_prefix(job.segment)}shards/{batch.first_row:012d}-{batch.rows}"
    results = list(results)
    with scratch() as folder:
        with ManifestWriter(folder / "rows.parquet", ROWS) as writer:
            for result in results:
                writer.append_batch(result.samples)
        rows = put_named(root, f"{name}.parquet", writer.file)
    omitted = list(chain.from_iterable(result.omitted for result in results))
    receipt = Receipt(
        shards=tuple(
            Shard(r.split, r.name, r.bytes, r.samples.num_rows, r.sha256) for r in results
        ),
        rows=rows,
        omitted=tuple(omitted[:SHOWN_FAILURES]),
        omitted_count=len(omitted),
    )
    root.put(f"{name}.json", seal(receipt))
