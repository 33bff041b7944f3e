"""The shard step: writes shards, each with a receipt, in batches of neighbours.

A repair packs one published shard again, into another store, and compares the bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from larder.bounds import BATCH_SAMPLES
from larder.budgets import even_share
from larder.copy.mirror_reader import Copies, FirstOf, Mirror, Unconditional
from larder.disk import scratch
from larder.errors import Failures, FatalError
from larder.jobs.crew import DividedStep, is_local, reachable, unit_bytes
from larder.jobs.manifests import fetched, read_ref
from larder.jobs.processes import shared_pool
from larder.jobs.results import BatchReport, Totals, merge_reports
from larder.machine import usable_cores
from larder.manifest.schemas import COPIES, SAMPLE_ORDER, SOURCES
from larder.manifest.sealed import StoredFile
from larder.progress import NullProgress, Progress
from larder.samples.arrow_columns import FROM_PREVIOUS, column_structs, from_objects
from larder.segments.image_rules import batch_read_bytes, image_rules, strongest_check
from larder.segments.pack import planned_shards
from larder.segments.reader_indexes import put_indexes
from larder.segments.segment_job import Job, open_root, open_source
from larder.segments.shard_receipts import finished_shards, list_shards, put_receipt, shard_of
from larder.segments.stores import storage_of, with_derived
from larder.shards.formats import shard_format
from larder.shards.formats.format_interface import ShardFormat
from larder.shards.images.transform import codec_versions
from larder.shards.model import (
    Part,
    PlannedSample,
    ShardBatch,
    ShardPlan,
    ShardResult,
    read_samples,
)
from larder.shards.old_shards import OldShards
from larder.shards.packing import batch_shards
from larder.shards.reading.fetch import sends_several
from larder.shards.reading.readahead import open_reads, suited_concurrency
from larder.shards.shard_build import STAGE, ShardBuild, build_shard
from larder.store import open_location
from larder.store.base import AHEAD, Readable, Store, Writer
from larder.versions import layout
from larder.versions.documents import Shape
from larder.versions.index import Shard

_LEAST_BYTES = 256_000_000
_LEAST_SAMPLES = 40_000

PIECE_ROWS = 2_048
"""Samples held as Python objects at a time; in columns they take a tenth of the memory."""


def shard_batches(job: Job, progress: Progress) -> tuple[list[ShardBatch], Totals]:
    """Return the shards to make, in batches of about ``runner.batch_bytes``; count the others."""
    root = open_root(job)
    with fetched(root, job.manifests["shards"]) as path:
        plans = list(planned_shards(path))
    finished = finished_shards(root, job, plans, progress)
    done = {shard.plan for shard in finished}
    missing = [plan for plan in plans if plan not in done]
    reused = sum((Totals(1, shard.bytes) for shard in finished if shard.bytes), Totals())
    size_bytes, rows = _batch_size(job, missing)
    return list(batch_shards(missing, size_bytes, batch_rows=rows)), reused


def _batch_size(job: Job, plans: Sequence[ShardPlan]) -> tuple[int, int]:
    """Return the maximum bytes and samples of a batch, so that workers get equal shares."""
    runner = job.cluster.runner
    at_once = runner.workers or usable_cores()
    sizes, rows = [plan.bytes for plan in plans], [plan.rows for plan in plans]
    spare_bytes, spare_rows = (max(each, default=0) // 2 for each in (sizes, rows))
    return (
        even_share(sum(sizes), spare_bytes, at_once, _LEAST_BYTES, runner.batch_bytes),
        even_share(sum(rows), spare_rows, at_once, _LEAST_SAMPLES, BATCH_SAMPLES),
    )


def shard_units(job: Job, batch: ShardBatch, count: int) -> list[ShardBatch]:
    """Split a batch into pieces for ``count`` processes, if other processes reach the stores.

    Images of a transform have processes of their own, several per shard.
    """
    here = not reachable(job.dataset.source, job.cluster.storage)
    if here or job.shape.images.transform is not None:
        return []
    return batch_shards(batch.shards, unit_bytes(batch.bytes, count))


def _sample_seconds(job: Job) -> tuple[float, float]:
    """Estimate the seconds per sample: requests cost far more than files."""
    local = is_local(job.dataset.source, job.cluster.storage)
    return (15e-6, 15e-6) if local else (0.4e-3, 0.1e-3)


# Reading, hashing and writing bytes do not hold the interpreter lock.
@DividedStep(shard_units, merge_reports, _sample_seconds, STAGE, cores=2)
def shard_batch(
    job: Job, batch: ShardBatch, *, progress: Progress, concurrent_batches: int = 1
) -> BatchReport:
    """Make the shards of one batch, each with a receipt.

    Shards that an earlier attempt at the batch has finished are not made again. Failed shards are
    not written and have no receipt. ``run.failed``: this machine cannot write shards as planned.
    """
    format_ = format_to_write(job.shape)
    failures, done = Failures(), Totals()
    root = open_root(job)
    finished = list_shards(root, job, batch.shards)
    receipts = {shard.plan: shard for shard in finished if shard.receipt}
    objects, packed = _origins(job, root, batch)
    source = _open_objects(job, root, batch) if objects else root
    stores = [source, root] if packed else [source]
    order = _rows_of(root, batch)(job.manifests["order"], SAMPLE_ORDER)
    with (
        open_build(job, stores, concurrent_batches, progress) as build,
        closing(read_samples(order)) as samples,
        scratch() as folder,
    ):
        for plan in batch.shards:
            shard_samples = islice(samples, plan.rows)
            if plan in receipts:
                _pass_over(shard_samples)
                size_bytes = receipts[plan].bytes
            else:
                open_writer = partial(shard_writer, root, job.segment, plan.split)
                result = build_shard(plan, shard_samples, format_, open_writer, build)
                _pass_over(shard_samples)
                failures.add_counted(result.failures, result.failed)
                progress.advance("shard")  # raises after a stop, before a receipt is written
                if not result.failed:
                    place = (job.segment, result.split, result.name)
                    indexes = put_indexes(root, *place, format_, result.samples)
                    shard = shard_of(result, indexes)
                    put_receipt(root, job.segment, shard, result.rows(), folder)
                size_bytes = result.bytes
            done += Totals(1, size_bytes) if size_bytes else Totals()
    return BatchReport.of(failures, done)


def format_to_write(shape: Shape) -> ShardFormat:
    """Return the format of a segment; ``run.failed`` if this machine would write other bytes."""
    here, transform = shard_format(shape.format, shape.options), shape.images.transform
    planned = {shape.format: f"version {shape.format_version} {shape.library}".strip()}
    installed = {shape.format: f"version {here.version} {here.library}".strip()}
    if transform is not None:
        planned |= transform.codecs or {}
        installed |= codec_versions()
    differing = [
        f"{name} {planned.get(name)}, here {version}"
        for name, version in installed.items()
        if planned.get(name) != version
    ]
    if differing:
        message = f"the shards were planned with {', '.join(differing)}"
        hint = "use the same release of Larder and the same packages as for the other shards"
        raise FatalError("run.failed", message, hint=hint)
    return here


def _origins(job: Job, root: Store, batch: ShardBatch) -> tuple[bool, bool]:
    """Return whether the batch reads samples from objects, and whether from old shards."""
    objects = packed = False
    for rows in _rows_of(root, batch)(job.manifests["order"], SAMPLE_ORDER, columns=FROM_PREVIOUS):
        objects |= bool(from_objects(rows).any())
        packed |= rows.column("packed").null_count < len(rows)
    return objects, packed


def _open_objects(job: Job, root: Store, batch: ShardBatch) -> Readable:
    """Open the store with the objects of samples: the mirror if there is one, else the source."""
    if (copied := job.manifests.get("copies")) is None:
        return open_source(job)
    rows = _rows_of(root, batch)
    order = rows(job.manifests["order"], SAMPLE_ORDER, columns=["parts"])
    copies = Copies(map(_copied, order, rows(copied, COPIES)))
    store = storage_of(job.dataset, job.cluster, layout.MIRROR_PREFIX)
    return with_derived(Mirror(store, copies), job.dataset, job.cluster)


def _copied(order: pa.RecordBatch, copies: pa.RecordBatch) -> pa.RecordBatch:
    """Return the copies of the objects of some samples, with the columns of OBJECTS."""
    parts, copied = order.column("parts").flatten(), copies.column("copies").flatten()
    columns = {name: parts.field(name) for name in ("key", "etag")}
    mirror_etags = pc.coalesce(copied.field("mirror_etag"), columns["etag"])
    columns |= {"mirror_etag": mirror_etags, "checksum": copied.field("checksum")}
    return pa.RecordBatch.from_pydict(columns)


def _rows_of(root: Store, batch: ShardBatch) -> Callable[..., Iterator[pa.RecordBatch]]:
    return partial(
        read_ref, root, first_row=batch.first_row, rows=batch.rows, batch_rows=PIECE_ROWS
    )


@contextmanager
def open_build(
    job: Job, stores: Sequence[Readable], concurrent_batches: int, progress: Progress
) -> Iterator[ShardBuild]:
    """Open the first of ``stores``, and old shards; concurrent batches share the limits."""
    root, limits = open_root(job), job.cluster.copy_
    allowed = max(1, limits.concurrency // concurrent_batches)
    rules = image_rules(job.dataset, job.cluster)
    check = strongest_check(job.dataset)
    runner = job.cluster.runner  # the workers of Dask and Ray have one core
    here = rules.transform is None or runner.kind != "local"
    processes = 1 if here else runner.workers or usable_cores()
    local = root.features.local_path
    threads = max(suited_concurrency(store, check, allowed) for store in stores)
    together = sends_several(stores[0], rules)
    # A batch of local files waits only for its core.
    waits = not (local and stores[0].features.local_path)
    with (
        OldShards(root, job.formats, layout.segment_of, weaker=job.weaker) as old_shards,
        open_reads(
            max(1, threads // AHEAD) if together else threads,
            batch_read_bytes(job.dataset, job.cluster, concurrent_batches, local=local),
            together=together,
        ) as reads,
        shared_pool(processes) as pool,
    ):
        beside = waits or concurrent_batches < usable_cores()
        checks = rules._replace(pool=pool)
        yield ShardBuild(stores[0], reads, old_shards, checks, beside, progress)


def _pass_over(samples: Iterator[PlannedSample]) -> None:
    """Skip the samples that a failed or finished shard has left unread."""
    deque(samples, maxlen=0)


def shard_writer(root: Store, segment: str, split: str, name: str) -> Writer:
    return root.writer(layout.shard_key(segment, split, name))


def pack_again(
    job: Job, shard: Shard, sources: StoredFile, output: Store, concurrent_batches: int
) -> ShardResult:
    """Write a shard and its indexes for other readers into ``output``, under their keys.

    Objects are read from the source or the mirror, whatever their etags.
    """
    source, format_ = _anywhere(job), format_to_write(job.shape)
    plan = ShardPlan(shard.split, 0, shard.name, shard.first, shard.samples, shard.bytes)
    with (
        open_build(job, [source], concurrent_batches, NullProgress()) as build,
        closing(_samples(job, source, shard, sources)) as samples,
    ):
        open_writer = partial(shard_writer, output, job.segment, plan.split)
        result = build_shard(plan, samples, format_, open_writer, build)
    if not result.failed:
        put_indexes(output, job.segment, plan.split, plan.name, format_, result.samples)
    return result


def _anywhere(job: Job) -> Readable:
    """Read objects in the planned state, else in any state that the mirror or the source has."""
    mirror = storage_of(job.dataset, job.cluster, layout.MIRROR_PREFIX)
    others = (
        with_derived(Unconditional(each), job.dataset, job.cluster)
        for each in (mirror, open_location(job.dataset.source, limits=job.cluster.copy_))
    )
    return FirstOf([open_source(job), *others])


def _samples(
    job: Job, source: Readable, shard: Shard, sources: StoredFile
) -> Generator[PlannedSample]:
    root, first, rows = open_root(job), shard.first_row, shard.samples
    for batch in read_ref(
        root, sources, SOURCES, first_row=first, rows=rows, batch_rows=PIECE_ROWS
    ):
        keys, labels = (batch.column(name).to_pylist() for name in ("key", "label"))
        parts = column_structs(batch.column("parts"), ("ext", "source", "length", "etag"), Part)
        if job.shape.images.transform:  # the recorded lengths are of transformed images
            parts = (tuple(_with_size(source, part) for part in each) for each in parts)
        for key, label, sample_parts in zip(keys, labels, parts, strict=True):
            yield PlannedSample(shard.split, key, label, sample_parts)


def _with_size(source: Readable, part: Part) -> Part:
    return part._replace(size_bytes=source.head(part.key).size_bytes)
