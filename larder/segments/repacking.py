"""Packs one published shard again, into another store; the caller compares the bytes."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from functools import partial

from larder.copy.mirror_reader import FirstOf, Unconditional
from larder.jobs.manifests import read_ref
from larder.manifest.schemas import SOURCES
from larder.manifest.sealed import StoredFile
from larder.progress import NullProgress
from larder.samples.arrow_columns import column_structs
from larder.segments.image_rules import check_codecs
from larder.segments.reader_indexes import put_indexes
from larder.segments.segment_job import Job, open_origin, open_root, open_source
from larder.segments.shard import PIECE_ROWS, format_to_write, open_build, shard_writer
from larder.segments.stores import storage_of, with_derived
from larder.shards.model import Part, PlannedSample, ShardPlan, ShardResult
from larder.shards.shard_build import build_shard
from larder.store.base import Readable, Store
from larder.versions import layout
from larder.versions.index import Shard


def pack_again(
    job: Job, shard: Shard, sources: StoredFile, output: Store, concurrent_batches: int
) -> ShardResult:
    """Write a shard and its indexes for other readers into ``output``, under their keys.

    Objects are read from the source or the mirror, whatever their etags. ``run.failed``: this
    machine cannot write shards as planned.
    """
    check_codecs(job.shape.images.transform)
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
        for each in (mirror, open_origin(job))
    )
    return FirstOf([open_source(job), *others])


def _samples(
    job: Job, source: Readable, shard: Shard, sources: StoredFile
) -> Generator[PlannedSample]:
    """Yield the samples of a shard as they were planned."""
    batches = read_ref(
        open_root(job),
        sources,
        SOURCES,
        first_row=shard.first_row,
        rows=shard.samples,
        batch_rows=PIECE_ROWS,
    )
    for batch in batches:
        keys, labels = (batch.column(name).to_pylist() for name in ("key", "label"))
        parts = column_structs(batch.column("parts"), ("ext", "source", "length", "etag"), Part)
        if job.shape.images.transform:  # the recorded lengths are of transformed images
            parts = (tuple(_with_size(source, part) for part in each) for each in parts)
        for key, label, sample_parts in zip(keys, labels, parts, strict=True):
            yield PlannedSample(shard.split, key, label, sample_parts)


def _with_size(source: Readable, part: Part) -> Part:
    return part._replace(size_bytes=source.head(part.key).size_bytes)
