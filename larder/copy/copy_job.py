"""The job of a copy and its batches of objects; `larder.copy.copy_end` records the copies.

::

    begin -> [send_ahead] -> copy_objects, in batches -> end_copy

Every process of the crew imports this module.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from larder.budgets import ByteBudget, even_share
from larder.config.models.copy_config import RunnerConfig
from larder.copy.allowance import CopyLimits, FailureRate
from larder.copy.copy_receipts import SET_BYTES, CopySets, find_receipts
from larder.copy.engine import copy_batch
from larder.copy.route import Route, SentAhead
from larder.copy.uploads import UploadRecords
from larder.disk import scratch
from larder.errors import SHOWN_FAILURES, Failure, FatalError, RetryableError
from larder.jobs.crew import DividedStep, is_local, reachable, unit_bytes
from larder.jobs.manifests import put_named, read_ref
from larder.jobs.results import BatchReport, Totals, merge_reports
from larder.jobs.step_runner import Runner
from larder.machine import processes_together, usable_cores
from larder.manifest.manifest_files import ManifestFile, ManifestWriter
from larder.manifest.schemas import DUE, FAILURES
from larder.manifest.sealed import StoredFile
from larder.progress import Progress
from larder.samples.arrow_columns import column_texts
from larder.store.base import ObjectInfo, Store

BATCH_OBJECTS = 50_000
"""Maximum number of objects in a batch; a batch of small objects takes minutes."""

_UNIT_OBJECTS = 1_024

_ENOUGH_BYTES = 96 << 20
"""Memory for six upload parts at once, each on its way in and out; more memory is no faster."""


class CopyJob(NamedTuple):
    """Input that the steps of one copy share.

    ``due`` is a manifest of schema DUE: the objects to copy, divided into batches of about
    ``batch_bytes``. ``run`` (16 hex digits) is in the names of the receipts. ``adopt``: another
    engine may already have copied some objects.
    """

    route: Route
    batch_bytes: int
    due: StoredFile
    run: str
    adopt: bool = False


class CopyBatch(NamedTuple):
    """Consecutive rows of the due objects."""

    first_row: int
    rows: int
    bytes: int

    @property
    def name(self) -> str:
        """Rows of the batch for people, counted from 1."""
        return f"objects {self.first_row + 1:,} to {self.first_row + self.rows:,}"


def begin(route: Route, runner: RunnerConfig, due: ManifestFile) -> CopyJob:
    """Put the list of due objects into the storage, where every task finds it."""
    run = secrets.token_hex(8)
    ref = put_named(route.open_root(), f"{route.place.work}due-{run}.parquet", due, "due")
    return CopyJob(route, even_batch_bytes(route.copies, runner), ref, run)


def even_batch_bytes(copies: Totals, runner: RunnerConfig) -> int:
    """Return the size of as few batches as possible that leave no worker, and its limits, idle."""
    most, object_bytes = runner.batch_bytes, -(-copies.bytes // max(1, copies.count))
    at_once = max(1, min(runner.workers or usable_cores(), -(-copies.bytes // most)))
    # With half an object more, unequal objects would often leave one for a batch of its own.
    return even_share(copies.bytes, object_bytes - 1, at_once, 0, most)


def make_copies(job: CopyJob, runner: Runner) -> tuple[BatchReport, SentAhead]:
    """Copy the due objects in batches; an engine that copies everything at once runs first."""
    copies, ahead = job.route.copies, SentAhead()
    runner.progress.start("mirror", objects=copies.count, bytes=copies.bytes)
    if job.route.choice.engine != "native":
        ahead = runner.run(send_ahead, job)
        job = job._replace(adopt=ahead.adopt)
    batches = list(cut_batches(_due(job, "size_bytes"), job.batch_bytes))
    report = merge_reports(runner.map(copy_objects, job, batches))
    if not report.failed:
        runner.progress.finish("mirror")
    return report, ahead


def _due(job: CopyJob, *columns: str, batch: CopyBatch | None = None) -> Iterator[pa.RecordBatch]:
    """Read the due objects of a copy or of one of its batches."""
    first_row, rows = (batch.first_row, batch.rows) if batch else (0, None)
    root = job.route.open_root()
    return read_ref(root, job.due, DUE, columns=columns, first_row=first_row, rows=rows)


def cut_batches(
    rows: Iterable[pa.RecordBatch],
    batch_bytes: int,
    batch_objects: int = BATCH_OBJECTS,
    first_row: int = 0,
) -> Iterator[CopyBatch]:
    """Cut rows into batches; each batch ends before the row that makes it too large.

    The rows, from ``first_row`` on, have a column ``size_bytes``. A single row may be larger than
    ``batch_bytes``.
    """
    first, sizes = first_row, np.zeros(0, np.int64)
    for batch in rows:
        sizes = np.append(sizes, batch.column("size_bytes").to_numpy())
        while (count := _fitting(sizes, batch_bytes, batch_objects)) < len(sizes):
            yield CopyBatch(first, count, int(sizes[:count].sum()))
            first, sizes = first + count, sizes[count:]
    if len(sizes):
        yield CopyBatch(first, len(sizes), int(sizes.sum()))


def _fitting(sizes: np.typing.NDArray[np.int64], batch_bytes: int, batch_objects: int) -> int:
    """Return how many of the first rows make a batch, at least 1."""
    count = int(np.searchsorted(np.cumsum(sizes), batch_bytes, side="right"))
    return min(max(1, count), batch_objects)


def copy_units(job: CopyJob, batch: CopyBatch, count: int) -> list[CopyBatch]:
    """Divide a batch for ``count`` processes, if other processes reach the stores.

    A batch with a bandwidth limit stays whole: one process keeps the limit best, and reaches it.
    """
    route = job.route
    if route.limits.max_bytes_per_second is not None or not reachable(route.source, route.storage):
        return []
    sizes, size_bytes = _due(job, "size_bytes", batch=batch), unit_bytes(batch.bytes, count)
    return list(cut_batches(sizes, size_bytes, _UNIT_OBJECTS, batch.first_row))


def send_ahead(job: CopyJob, *, progress: Progress) -> SentAhead:
    """Run an engine that copies everything at once, before the batches; see `Route.send`."""
    keys = (key for rows in _due(job, "key") for key in column_texts(rows.column("key")))
    return job.route.send(keys, progress)


def _object_seconds(job: CopyJob) -> tuple[float, float]:
    """Estimate the seconds per object; half of them are hashing and system calls."""
    seconds = 0.15e-3 if is_local(job.route.source, job.route.storage) else 0.4e-3
    return seconds, seconds / 2


@DividedStep(copy_units, merge_reports, _object_seconds, "mirror", cores=2)
def copy_objects(
    job: CopyJob, batch: CopyBatch, *, progress: Progress, concurrent_batches: int = 1
) -> BatchReport:
    """Copy one batch, and write receipts of its copies, even if it is stopped.

    Objects in receipts of an earlier attempt at the same batch are not copied again. Concurrent
    batches share ``copy.concurrency`` and ``copy.memory_bytes``.
    """
    root, place = job.route.open_root(), job.route.place
    limits = _limits(job, root, concurrent_batches)
    with (
        scratch() as folder,
        CopySets(
            root,
            f"{place.receipts}{job.run}-",
            folder,
            set_bytes=SET_BYTES * processes_together() // concurrent_batches,
            receipts=[
                receipt
                for receipt in find_receipts(root, place, job.run)
                if batch.first_row <= receipt.rows.start < batch.first_row + batch.rows
            ],
        ) as sets,
    ):
        progress.advance("mirror", objects=sets.done.count, bytes=sets.done.bytes)
        stopped = ""
        try:
            copy_batch(
                job.route.open_source(),
                root,
                sets.divide(_objects(job, batch), batch.first_row),
                prefix=place.objects,
                limits=limits,
                progress=progress,
                copied=sets.copied,
                failed=sets.failed,
                ended=sets.write,
            )
        except (FatalError, RetryableError) as error:
            stopped = limits.failures.reason
            outage = isinstance(error, RetryableError) and not sets.done.count
            if outage or not stopped or error.code not in ("run.failed", "store.unavailable"):
                raise
        failures = limits.failures.failures
        return BatchReport(
            done=sets.done,
            failures=failures[:SHOWN_FAILURES],
            failed=len(failures),
            lists=_put_failures(root, f"{place.work}failed-{job.run}", failures, folder),
            stopped=stopped,
        )


def _limits(job: CopyJob, root: Store, concurrent_batches: int) -> CopyLimits:
    """Return the limits of one batch; concurrent batches share the configured limits."""
    config = job.route.limits
    memory_bytes = config.memory_bytes or min(config.memory, _ENOUGH_BYTES)
    return CopyLimits(
        concurrency=max(1, config.concurrency // concurrent_batches),
        budget=ByteBudget(max(1, memory_bytes // concurrent_batches)),
        verify=config.verify,
        failures=FailureRate(config.max_failure_rate),
        adopt=job.adopt,
        uploads=UploadRecords(root, job.route.place.uploads),
        give_up_seconds=config.give_up_seconds,
    )


def _objects(job: CopyJob, batch: CopyBatch) -> Iterator[ObjectInfo]:
    """Yield the objects of a batch; their modification times are not needed, and are 0."""
    names = ("key", "size_bytes", "etag")
    for rows in _due(job, *names, batch=batch):
        yield from map(ObjectInfo, *(rows.column(name).to_pylist() for name in names), repeat(0))


def _put_failures(
    root: Store, prefix: str, failures: Sequence[Failure], folder: Path
) -> tuple[StoredFile, ...]:
    if not failures:
        return ()
    with ManifestWriter(folder / "failures.parquet", FAILURES) as writer:
        writer.append(failures)
    file = writer.file
    return (put_named(root, f"{prefix}-{file.sha256[:16]}.parquet", file, "failures"),)
