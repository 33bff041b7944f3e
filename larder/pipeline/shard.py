"""The shard step: batches of shards with receipts, and the index over all of them.

A receipt is a document per finished batch, written after the batch's shards and rows. A rerun
reads the receipts, sees which shards stand, and makes the others.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, cast

from larder.errors import Failure
from larder.limits import read_ahead_bytes
from larder.manifest.files import ManifestWriter
from larder.manifest.schemas import ARRANGEMENT
from larder.pipeline.job import (
    Job,
    Ref,
    listed,
    opened,
    opened_root,
    opened_source,
    put_named,
    scratch,
)
from larder.pipeline.manifests import fetched, read_ref
from larder.pipeline.pack import planned_shards
from larder.pipeline.results import SHOWN_FAILURES, BatchReport, Count
from larder.progress import Progress
from larder.shards.build import build_shard
from larder.shards.model import ROWS, Sample, ShardBatch, ShardResult, read_samples
from larder.shards.packing import batch_shards
from larder.shards.readahead import open_reads, suited_concurrency
from larder.store import object_url
from larder.store.base import Store
from larder.transfer.align import MIRRORED
from larder.transfer.mirrored import Mirror, mirrored_objects
from larder.versions import layout
from larder.versions.documents import seal, unseal

__all__ = ["BATCH_ROWS", "Receipt", "read_receipts", "shard_batch", "shard_batches"]

BATCH_ROWS = 100_000
"""A batch ends at so many samples too: a task holds some 1,200 bytes of each."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard that stands: ``bytes`` is 0 for one that no sample was left for.

    ``omitted`` are the first samples that were left out of it, ``omitted_count`` is all of them.
    """

    split: str
    name: str
    bytes: int
    samples: int
    sha256: str
    omitted: tuple[Failure, ...]
    omitted_count: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """A finished batch of shards.

    Attributes:
        shards: In the order of the plan.
        rows: Manifest of schema ROWS: the samples of all of them, one after the other.
    """

    shards: tuple[Shard, ...]
    rows: Ref


def read_receipts(root: Store, segment: str) -> Iterator[Receipt]:
    """The receipts of a segment's finished batches.

    One whose rows are gone is left out, and one that another Larder wrote in another way.
    """
    infos = listed(root, f"{layout.work_prefix(segment)}shards/")
    sizes = {info.key: info.size_bytes for info in infos}
    for key in sizes:
        if key.endswith(".json"):
            receipt = _receipt(unseal(bytes(root.get(key)), object_url(root.url, key)))
            if receipt is not None and sizes.get(receipt.rows.key) == receipt.rows.bytes:
                yield receipt


def _receipt(plain: dict[str, Any]) -> Receipt | None:
    try:
        shards = tuple(_shard(**shard) for shard in plain["shards"])
        return Receipt(shards, Ref(**plain["rows"]))
    except (KeyError, TypeError):
        return None


def _shard(*, omitted: Iterable[dict[str, str]], **fields: Any) -> Shard:
    return Shard(omitted=tuple(Failure(**failure) for failure in omitted), **fields)


def shard_batches(job: Job) -> tuple[list[ShardBatch], Count]:
    """The shards to make, in batches of about ``runner.batch_bytes``, and those that stand."""
    with opened_root(job) as root:
        done = _standing(root, job)
        with fetched(root, job.shard_plan) as path:
            plans = planned_shards(path)
            missing = [plan for plan in plans if (plan.split, plan.name) not in done]
    standing = sum((Count(1, size_bytes) for size_bytes in done.values() if size_bytes), Count())
    return batch_shards(missing, job.cluster.runner.batch_bytes, batch_rows=BATCH_ROWS), standing


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
    allowed = max(1, limits.concurrency // beside)
    results: list[ShardResult] = []
    with (
        opened_root(job) as root,
        _reading(job, root, batch) as source,
        open_reads(
            suited_concurrency(source, job.dataset.validation, allowed),
            read_ahead_bytes(limits.memory_bytes // beside, local=root.features.local_path),
        ) as reads,
        closing(_samples(job, root, batch)) as samples,
    ):
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


@contextmanager
def _reading(job: Job, root: Store, batch: ShardBatch) -> Iterator[Store]:
    """What the samples are read from: the mirror if there is one, else the source."""
    if job.mirror is None:
        with opened_source(job) as source:
            yield source
        return
    parts = read_ref(root, job.mirror.parts, MIRRORED, first_row=batch.first_row, rows=batch.rows)
    with opened(job.cluster.local, object_url(job.root, layout.mirror_prefix())) as store:
        # A mirror has what shards are made with, and no more: head, get and open.
        yield cast("Store", Mirror(store, mirrored_objects(parts)))


def _samples(job: Job, root: Store, batch: ShardBatch) -> Generator[Sample]:
    first_row, rows = batch.first_row, batch.rows
    yield from read_samples(
        read_ref(root, job.arrangement, ARRANGEMENT, first_row=first_row, rows=rows)
    )


def _leave_receipt(
    root: Store, job: Job, batch: ShardBatch, results: Sequence[ShardResult]
) -> None:
    name = f"{layout.work_prefix(job.segment)}shards/{batch.first_row:012d}-{batch.rows}"
    with scratch() as folder:
        with ManifestWriter(folder / "rows.parquet", ROWS) as writer:
            for result in results:
                writer.append_batch(result.samples)
        # Another run may leave the same receipt now, with rows of other bytes.
        rows = put_named(root, f"{name}-{writer.file.sha256[:16]}.parquet", writer.file)
    shards = [
        Shard(
            split=result.split,
            name=result.name,
            bytes=result.bytes,
            samples=result.samples.num_rows,
            sha256=result.sha256,
            omitted=result.omitted[:SHOWN_FAILURES],
            omitted_count=len(result.omitted),
        )
        for result in results
    ]
    root.put(f"{name}.json", seal({"shards": shards, "rows": rows}))
