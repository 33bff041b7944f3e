"""The order of the steps from a job to a published version, for every runner."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from larder.copy.copy_end import EarlierCopies, end_copy
from larder.copy.copy_job import make_copies
from larder.copy.copy_record import CopyDocument
from larder.copy.route import SentAhead
from larder.errors import Failure
from larder.jobs.results import BatchReport, RunError, Totals, merge_reports
from larder.jobs.step_runner import Runner
from larder.machine import give_back_memory
from larder.pipeline.publish_step import Published, publish, publish_existing
from larder.segments.cache_step import cache_split, cache_splits, check_fields
from larder.segments.index_step import index_shards
from larder.segments.mirror import (
    failed_hint,
    has_receipts,
    mirror_route,
    put_copies,
    write_measured,
)
from larder.segments.segment_job import Job
from larder.segments.shard import shard_batch, shard_batches
from larder.versions.documents import CacheFile, SegmentDocument, VersionDocument


class Built(NamedTuple):
    """A published version, and the work that this run did for it.

    ``reused_shards`` counts shards that an earlier run had finished. ``omitted`` names the first
    samples left out. ``ahead`` is the error of an engine that copied first and failed.
    """

    version: VersionDocument
    status: str
    copied: Totals
    reused_shards: Totals
    new_segments: int
    omitted: tuple[Failure, ...] = ()
    ahead: str = ""
    pinned: str | None = None


def build(job: Job, runner: Runner) -> Built:
    """Execute a job; if objects or samples fail, a RunError is raised, and nothing is published.

    Every step finds the finished work of earlier runs, and does the rest. So if a run was killed
    after segment.json and before version.json, the next run writes version.json.
    """
    if job.published:
        existing: Published = runner.run(publish_existing, job)
        reused = Totals(sum(split.shards for split in existing.version.splits.values()))
        pinned = existing.pinned
        return Built(existing.version, "reused", Totals(), reused, new_segments=0, pinned=pinned)
    copied, ahead, reused = BatchReport(), SentAhead(), Totals()
    segment: SegmentDocument | None = None
    left_out: tuple[Failure, ...] = ()
    give_back_memory()  # the memory of the plan; the longer it is kept, the more scattered it is
    if (new := job.new) is not None:
        if not new.complete:
            if job.mirrored:
                copied, ahead = _mirror(job, runner)
                job = replace(job, manifests={**job.manifests, "copies": put_copies(job)})
            reused = _shard(job, runner)
        segment, left_out = runner.run(index_shards, job)
        if new.complete:
            splits = segment.splits.values()
            reused = sum((Totals(split.shards, split.bytes) for split in splits), Totals())
    segments = [*job.kept, *([segment] if segment else [])]
    if segment and not job.kept and not segment.samples:
        report = BatchReport(failures=left_out, failed=segment.skipped)
        raise RunError("shard", report)
    cache = _cache(job, segments, runner)
    published: Published = runner.run(publish, job, segment, cache)
    return Built(
        version=published.version,
        status="built",
        copied=copied.done,
        reused_shards=reused,
        new_segments=1 if new and not new.complete else 0,
        omitted=left_out,
        ahead=ahead.message,
        pinned=published.pinned,
    )


def _mirror(job: Job, runner: Runner) -> tuple[BatchReport, SentAhead]:
    """Copy the objects that have no copy, and record them with the copies of killed runs."""
    report, ahead, began_seconds = BatchReport(), SentAhead(), time.monotonic()
    if job.due:
        report, ahead = make_copies(job.due, runner)
    took_seconds = time.monotonic() - began_seconds
    if job.due or has_receipts(job):
        route = mirror_route(job.dataset, job.cluster, report.done)
        record: CopyDocument = runner.run(end_copy, route, job.due, report, EarlierCopies())
        if report.failed:
            raise RunError("mirror", report, failed_hint(job, record))
    write_measured(job, report.done, took_seconds)
    return report, ahead


def _shard(job: Job, runner: Runner) -> Totals:
    batches, reused = shard_batches(job, runner.progress)
    give_back_memory()  # processes may need it now
    if batches:
        objects = sum(batch.rows for batch in batches)
        size_bytes = sum(batch.bytes for batch in batches)
        runner.progress.start("shard", objects=objects, bytes=size_bytes)
        RunError.unless_clean("shard", merge_reports(runner.map(shard_batch, job, batches)))
        runner.progress.finish("shard")
    return reused


def _cache(job: Job, segments: Sequence[SegmentDocument], runner: Runner) -> tuple[CacheFile, ...]:
    batches, complete = cache_splits(job, segments, runner.progress)
    files: list[CacheFile] = []
    if batches:
        runner.progress.start("cache", objects=sum(batch.rows for batch in batches))
        files = runner.map(cache_split, job, batches)
        runner.progress.finish("cache")
    omitted = {
        (use.id, split): rows.count for use in job.uses for split, rows in use.omitted.items()
    }
    listed = {
        (segment.id, split)
        for segment in segments
        for split, facts in segment.splits.items()
        if facts.samples > omitted.get((segment.id, split), 0)
    }
    check_fields(file for file in (*complete, *files) if (file.segment, file.split) in listed)
    order = [segment.id for segment in segments]
    return tuple(sorted([*complete, *files], key=lambda file: order.index(file.segment)))
