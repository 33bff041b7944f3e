"""Reads shards and cache files again, and compares them with their published state."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from larder.budgets import map_ahead
from larder.cache.cache_record import CacheFileFacts
from larder.cache.file import open_file
from larder.disk import disk_errors, scratch, workshop
from larder.errors import DamageError, NotFoundError
from larder.jobs.crew import DividedStep, reachable
from larder.jobs.results import Totals
from larder.progress import Progress
from larder.segments.index_check import IndexedColumns
from larder.shards.formats import shard_format
from larder.shards.formats.format_interface import index_files
from larder.store import local_path, open_store
from larder.store.base import Store
from larder.store.own_files import published_file_errors
from larder.verify.shard_check import inspect_shard
from larder.verify.verify_job import (
    MISSING,
    SHOWN_SAMPLES,
    Finding,
    Role,
    Verified,
    VerifyBatch,
    VerifyJob,
    compared,
    open_verified,
)
from larder.versions import layout
from larder.versions.documents import CacheFile
from larder.versions.index import SegmentIndex, Shard
from larder.versions.rows import index_rows, open_index

STAGE = "verify"

_READ_BYTES = 16 << 20
"""Memory of a thread that reads a shard."""

Indexed = tuple[Shard, IndexedColumns | None, str]
"""A shard, its index if known, and the problem with the index."""


def verify_units(job: VerifyJob, batch: VerifyBatch, _count: int) -> list[VerifyBatch]:
    """Return the shards of a batch for several processes, if other processes reach the storage."""
    return batch.singles if batch.shards and reachable(job.cluster.storage) else []


def merge_verified(results: Sequence[Verified]) -> Verified:
    findings = dict.fromkeys(finding for each in results for finding in each.findings)
    return Verified(tuple(findings), sum((each.read for each in results), Totals()))


@DividedStep(verify_units, merge_verified, lambda _: (15e-6, 15e-6), STAGE)
def verify_batch(
    job: VerifyJob, batch: VerifyBatch, *, progress: Progress, concurrent_batches: int = 1
) -> Verified:
    """Read the files of one batch again.

    Every file is read once. In a bucket several shards are read at a time, as many as
    ``copy.concurrency`` and ``copy.memory_bytes`` allow; in a directory one after the other.
    """
    root = open_verified(job)

    def count(size_bytes: int) -> None:
        progress.advance(STAGE, bytes=size_bytes)

    if batch.cache:
        cached = tuple(_verify_cache(root, batch.cache, count))
        progress.advance(STAGE, objects=1)
        return Verified(cached, Totals(1, batch.cache.bytes))
    limits = job.cluster.copy_
    threads = 1
    if not root.features.local_path:
        share = min(limits.concurrency, limits.memory // _READ_BYTES) // concurrent_batches
        threads = max(1, min(share, len(batch.shards)))

    def one(indexed: Indexed) -> list[Finding]:
        with published_file_errors():
            findings = list(_verify_shard(root, batch, *indexed, count))
        progress.advance(STAGE, objects=len(indexed[0].published))
        return findings

    indexed = _shards_index(root, batch)
    if threads == 1:
        findings = [finding for each in indexed for finding in one(each)]
    else:
        with ThreadPoolExecutor(threads, thread_name_prefix="verify") as pool:
            results = map_ahead(pool, one, indexed, window=threads + 1)
            findings = [finding for result in results for finding in result]
    return Verified(tuple(findings), Totals(batch.files, batch.bytes))


def _shards_index(root: Store, batch: VerifyBatch) -> Iterator[Indexed]:
    """Yield the shards of a batch with their samples; samples of one shard are in memory."""
    with ExitStack() as stack:
        index, problem = None, ""
        try:
            if batch.index is not None and batch.shards:
                index = stack.enter_context(open_index(root, batch.index))
        except (DamageError, NotFoundError) as error:
            problem = f"its index cannot be read: {error.message}"
        for shard in batch.shards:
            yield _indexed(index, shard) if index is not None else (shard, None, problem)


def _indexed(index: SegmentIndex, shard: Shard) -> Indexed:
    stop_row = shard.first_row + shard.samples
    if stop_row > index.count:
        return shard, None, f"the index has {index.count:,} samples, not {stop_row:,}"
    try:
        rows = index_rows(index, np.arange(shard.first_row, stop_row))
    except DamageError as error:
        return shard, None, f"its index cannot be read: {error.message}"
    if not pc.all(pc.equal(rows.column("shard"), shard.name), min_count=0).as_py():
        problem = f"the index has another shard for some of its {shard.samples:,} samples"
        return shard, None, problem
    return shard, IndexedColumns(rows), ""


def _verify_shard(
    root: Store,
    batch: VerifyBatch,
    shard: Shard,
    samples: IndexedColumns | None,
    problem: str,
    count: Callable[[int], None],
) -> Iterator[Finding]:
    format_ = shard_format(*batch.format) if batch.format else None
    with ExitStack() as stack:
        spool = None
        if not root.features.local_path and samples and format_ and not format_.framed:
            spool = open_store(str(stack.enter_context(scratch())))
        findings = inspect_shard(root, shard.files, samples, format_, count, spool, shard.first)
    for finding in findings:
        if samples is None:
            message = f"{finding.message}; its index is not known"
            yield replace(finding, message=message, count=shard.samples)
        elif finding.count or finding.message == MISSING or len(shard.files) > 1:
            yield finding
        else:
            message = f"{finding.message}; the parts of its samples are intact"
            yield replace(finding, message=message)
    made: dict[str, str] = {}
    if samples and format_ and shard.indexes and not findings:
        indexes = index_files(format_.indexes, shard.name, samples.spooled())
        made = {file.kind: file.sha256 for file, _ in indexes}
    for file in shard.indexes:
        code, message = compared(root, file, lambda buffer: count(len(buffer)))
        if code:
            yield Finding(file.path, "index", code, message)
        elif made.get(file.role, file.sha256) != file.sha256:
            message = "the file is as it was published, but names other places than the index"
            yield Finding(file.path, "content", "damage.manifest", message)
    if problem:
        yield Finding(shard.files[0].path, "content", "damage.manifest", problem, (), shard.samples)
    message, wrong = samples.label_problems(batch.classes) if samples else ("", [])
    if samples and wrong:
        named = samples.named(wrong[:SHOWN_SAMPLES])
        yield Finding(shard.files[0].path, "content", "damage.manifest", message, named, len(wrong))


def _verify_cache(root: Store, file: CacheFile, count: Callable[[int], None]) -> Iterator[Finding]:
    with ExitStack() as stack:
        stack.enter_context(published_file_errors())
        folder = stack.enter_context(workshop(Path(tempfile.gettempdir())))
        local = root.features.local_path
        path = local_path(root, file.path) if local else folder / "data.mdb"
        copy = None
        if not local:
            stack.enter_context(disk_errors(path))
            copy = stack.enter_context(path.open("wb"))

        def each(buffer: bytes) -> None:
            count(len(buffer))
            if copy:
                copy.write(buffer)

        code, message = compared(root, file, each)
        if copy:
            copy.flush()
        role: Role = "cache"
        if not code and (problem := _records_problem(path, file)):
            role, code, message = "content", "damage.record", problem
        if code:
            yield Finding(file.path, role, code, message, count=file.records)


def _records_problem(path: Path, file: CacheFile) -> str:
    """Return the problem with the records of a file whose digest is right; empty if none."""
    place = layout.place_of_cache_file(file.path)
    facts = CacheFileFacts(file.bytes, file.sha256, file.digest, file.records, place)
    try:
        with closing(open_file(path, facts)) as reader:
            reader.verify()
            kinds = {each.name: each.kind for each in reader.schema.fields}
    except DamageError as error:
        record = error.where.removeprefix(str(path)).lstrip(", ")
        return f"{record}: {error.message}" if record else error.message
    wanted = dict(file.fields)
    return "" if kinds == wanted else f"its fields are {kinds}, not {wanted}"
