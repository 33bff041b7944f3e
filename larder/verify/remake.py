"""Makes shards and cache files again whose places are free, by the steps of a build."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import pyarrow.compute as pc

from larder.config.formats import FormatUse
from larder.config.models import Cache
from larder.errors import LarderError, RetryableError, StoreError
from larder.manifest.schemas import SAMPLE_ORDER, SAMPLES
from larder.manifest.spool import Spool
from larder.pipeline.cache import CacheBatch, cache_split
from larder.pipeline.job import Job
from larder.pipeline.manifests import fetched, read_ref
from larder.pipeline.pack import planned_shards
from larder.pipeline.reader_indexes import put_indexes
from larder.pipeline.shard import PackBatch, shard_batch_here
from larder.progress import NullProgress, Progress
from larder.shards.formats import shard_format
from larder.shards.model import ShardPlan
from larder.store.base import Store
from larder.units import format_count
from larder.verify.aside import STAGE, Repair, Spares, is_there
from larder.verify.files import has_content
from larder.verify.job import ShardToVerify, VerifyBatch, VerifyJob, open_verified
from larder.verify.repair import TAKEN, Refused, segment_job, version_job
from larder.versions import layout
from larder.versions.documents import CacheFile, SegmentDocument, VersionDocument
from larder.versions.identity import own_cache_id
from larder.versions.publish import read_segment, read_version

_PREPARE = (
    "put what it was made from back as it was, or restore the file; or prepare the dataset again:"
    " the next version follows the source"
)


def repair_large(
    job: VerifyJob, batch: VerifyBatch, *, progress: Progress, concurrent_batches: int = 1
) -> list[Repair]:
    """Make shards or a cache file again, and say what became of each of their files.

    What differs from what was published is removed again.
    """
    root = open_verified(job)
    spares = Spares(root, {size_bytes for _, size_bytes, _ in batch.published()})
    repairs: list[Repair] = []
    for one in batch.singles:
        repairs += _repaired(job, root, one, spares, concurrent_batches)
        progress.advance(STAGE, objects=1, bytes=one.bytes)
    return repairs


def _repaired(
    job: VerifyJob,
    root: Store,
    batch: VerifyBatch,
    spares: Spares,
    concurrent_batches: int,
) -> Iterator[Repair]:
    """Find the files of one shard or cache elsewhere, or make them."""
    files = batch.published()
    sources = {
        file[0]: "" if is_there(root, file[0]) else spares.fill(*file)
        for file in files
        if not has_content(root, *file)
    }
    missing = {path for path, source in sources.items() if not source}
    taken = any(is_there(root, path) for path in missing)
    why = TAKEN if taken else ""
    if missing and not taken:
        try:
            _make(job, root, batch, missing, concurrent_batches)
        except (StoreError, RetryableError):
            raise
        except (Refused, LarderError) as error:
            why = str(error)
    for file in files:
        path = file[0]
        right = has_content(root, *file)
        if not right and not taken:
            root.delete(path)
            right = bool(spares.fill(*file))
        if right:
            source = sources.get(path)
            yield Repair(path, True, f"copied from {source}" if source else "made again")
        else:
            yield Repair(path, False, why or f"made again, it has other bytes; {_PREPARE}")


def _make(
    job: VerifyJob,
    root: Store,
    batch: VerifyBatch,
    missing: Collection[str],
    concurrent_batches: int,
) -> None:
    version, document = read_version(root, job.version), read_segment(root, batch.segment)
    if version is None or document is None:
        raise Refused(f"{layout.segment_key(batch.segment)} has to be repaired first")
    if batch.cache:
        _make_cache(job, root, version, document, batch, batch.cache)
        return
    (shard,) = batch.shards
    format_ = shard_format(*document.shape.use)
    if format_.version != document.shape.format_version:
        raise Refused(
            f"it was written by version {document.shape.format_version} of the format"
            f" {document.shape.format}, and this Larder writes version {format_.version}; repair it"
            " with the one that wrote it"
        )
    index = layout.index_prefix(batch.segment)
    if batch.samples and all(path.startswith(index) for path in missing):
        rows = read_ref(root, batch.samples, SAMPLES, first_row=shard.first_row, rows=shard.rows)
        spool = Spool.of(rows, SAMPLES)
        put_indexes(root, batch.segment, shard.split, shard.name, format_, spool)
        return
    _make_shard(root, segment_job(job, root, version, document), batch, shard, concurrent_batches)


def _make_shard(
    root: Store, job: Job, batch: VerifyBatch, shard: ShardToVerify, concurrent_batches: int
) -> None:
    with fetched(root, job.shard_plan) as path:
        plans = planned_shards(path)
        plan = next(
            (each for each in plans if (each.split, each.name) == (shard.split, shard.name)), None
        )
    if plan is None:
        raise Refused(f"the plan of its segment has no shard {shard.name}")
    job = replace(job, formats=_formats(root, job, plan))
    key, size_bytes, sha256 = shard.published(batch.segment)[0]
    why: LarderError | Refused | None = None
    for unpacked in (False, True):  # what is packed is in old shards, and may be in the source
        try:
            report = shard_batch_here(
                replace(job, unpacked=unpacked),
                PackBatch(0, (plan,)),
                progress=NullProgress(),
                concurrent_batches=concurrent_batches,
            )
        except (StoreError, RetryableError):
            raise
        except LarderError as error:
            why = why or error
            continue
        if report.failed:
            more = report.failed - 1
            others = f" (and {format_count(more, 'more object')})" if more else ""
            why = why or Refused(f"{report.failures[0].line}{others}; {_PREPARE}")
        elif has_content(root, key, size_bytes, sha256):
            return
    if why:
        raise why


def _formats(root: Store, job: Job, plan: ShardPlan) -> dict[str, FormatUse]:
    """The formats of the segments that samples of a shard were packed in before."""
    rows = read_ref(
        root,
        job.sample_order,
        SAMPLE_ORDER,
        columns=["packed"],
        first_row=plan.first_row,
        rows=plan.rows,
    )
    segments = {
        segment
        for batch in rows
        for segment in pc.unique(batch.column("packed").field("segment")).to_pylist()
    }
    documents = (read_segment(root, segment) for segment in segments - {None})
    return {document.id: document.shape.use for document in documents if document}


def _make_cache(
    job: VerifyJob,
    root: Store,
    version: VersionDocument,
    document: SegmentDocument,
    batch: VerifyBatch,
    file: CacheFile,
) -> None:
    assert version.cache is not None, "a cache file is of a cache"
    dataset = job.dataset.model_copy(
        update={"cache": Cache.model_validate({"records": version.cache.kind})}
    )
    if layout.cache_of(file.path) != (document.id, own_cache_id(dataset, document.id)):
        raise Refused("the dataset file, or a decoder here, makes another cache now; restore it")
    if batch.samples is None:
        raise Refused("the manifest of samples of its segment has to be repaired first")
    facts = document.splits[file.split]
    made = cache_split(
        version_job(job, version, dataset),
        CacheBatch(
            document.id,
            document.shape.use,
            file.split,
            batch.samples,
            facts.first_row,
            facts.samples,
            facts.bytes,
        ),
        progress=NullProgress(),
    )
    if made.path != file.path:
        root.delete(made.path)
        if made.digest == file.digest:
            raise Refused(
                "built again, it has the same records but other bytes: those of LMDB depend on the"
                " page size of the machine; repair it on a machine like the one that built it"
            )
        raise Refused(
            "built again, it has other records than were published: decoded images depend on the"
            " version of Pillow; repair it with the packages that built it, or restore the file"
        )
