"""The steps of a copy: the job, batches of objects, and the record at the end.

The order of the last writes is that of what names what: the manifest and the list of failures,
copy.json that names both, and only then is deleted what it replaces: receipts, lists, the manifest
before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.copy.copy_limits import CopyLimits
from larder.copy.difference import in_order, places
from larder.copy.uploads import UploadRecords
from larder.disk import scratch
from larder.jobs.manifests import put_named, read_ref
from larder.jobs.results import BatchReport
from larder.manifest.files import write_manifest
from larder.manifest.query import Stream
from larder.manifest.reference import ManifestRef
from larder.manifest.rows import RowDigest
from larder.manifest.schemas import OBJECTS
from larder.manifest.sort import aligned, sort, whole_keys
from larder.pipeline.copy_batch import copied_batch, gather_failures
from larder.pipeline.copy_receipts import BATCH_OBJECTS, CopyPlace, batch_name, find_receipts
from larder.pipeline.copying_plan import CopyPlan
from larder.pipeline.copying_record import (
    COPY_KEY,
    UPLOADS_PREFIX,
    WORK_PREFIX,
    CopyDocument,
    Origin,
    copy_place,
    failures_key,
    manifest_key,
    put_record,
    read_record,
    work_key,
)
from larder.pipeline.copying_settings import CopySettings
from larder.pipeline.job import CopyBatch
from larder.pipeline.route import Route, SentAhead
from larder.progress import Progress
from larder.samples.columns import column_texts
from larder.source.inventory import IDENTITY
from larder.store.base import ObjectInfo, Store
from larder.store.own_files import listed


@dataclass(frozen=True, slots=True)
class CopyJob:
    """What the steps of one copy share.

    ``due`` is a manifest of schema OBJECTS: the objects to copy. ``adopt``: another engine may have
    copied some of them already.
    """

    settings: CopySettings
    place: CopyPlace
    due: ManifestRef
    route: Route
    adopt: bool = False


def begin_copy(plan: CopyPlan) -> CopyJob:
    """Put the list of what is due into the storage, where every task finds it."""
    root, file = plan.state.root, plan.due
    due = put_named(root, work_key("due", file.sha256), file)
    return CopyJob(plan.located, copy_place(plan.state.origin), due, plan.route)


def copy_batches(job: CopyJob) -> list[CopyBatch]:
    """The copies to make: ranges of rows of the list, of about ``runner.batch_bytes``."""
    rows = read_ref(job.settings.open_root(), job.due, OBJECTS, columns=["size_bytes"])
    return list(cut_batches(rows, job.settings.runner.batch_bytes))


def cut_batches(rows: Iterable[pa.RecordBatch], batch_bytes: int) -> Iterator[CopyBatch]:
    """Cut rows into batches; one ends before the row that makes it too large.

    The rows have a column ``size_bytes``. A single row may be larger than ``batch_bytes``.
    """
    first, sizes = 0, np.zeros(0, np.int64)
    for batch in rows:
        sizes = np.append(sizes, batch.column("size_bytes").to_numpy())
        while (count := _fitting(sizes, batch_bytes)) < len(sizes):
            yield CopyBatch(first, count, count, int(sizes[:count].sum()))
            first, sizes = first + count, sizes[count:]
    if len(sizes):
        yield CopyBatch(first, len(sizes), len(sizes), int(sizes.sum()))


def _fitting(sizes: np.typing.NDArray[np.int64], batch_bytes: int) -> int:
    """How many of the first rows make a batch."""
    count = int(np.searchsorted(np.cumsum(sizes), batch_bytes, side="right"))
    return min(max(1, count), BATCH_OBJECTS)


_COLUMNS = ("key", "size_bytes", "etag")


def copy_objects(
    job: CopyJob, batch: CopyBatch, *, progress: Progress, concurrent_batches: int = 1
) -> BatchReport:
    """Copy one batch and write a receipt of what was copied, even if it is stopped.

    What receipts of an earlier attempt at the same batch list is not copied again. Concurrent
    batches share ``copy.concurrency`` and ``copy.memory_bytes``.
    """
    name = batch_name(job.due, batch)
    root = job.settings.open_root()
    return copied_batch(
        job.settings.open_source(),
        root,
        partial(_objects, job, root, batch),
        name=name,
        count=batch.objects,
        place=job.place,
        limits=CopyLimits.of(
            job.settings.limits,
            concurrent_batches=concurrent_batches,
            adopt=job.adopt,
            uploads=UploadRecords(root, UPLOADS_PREFIX),
        ),
        progress=progress,
    )


def send_ahead(job: CopyJob, *, progress: Progress) -> SentAhead:
    """Let an engine that copies everything at once go before the batches; see `ahead`."""
    root = job.settings.open_root()

    def keys() -> Iterator[str]:
        for batch in read_ref(root, job.due, OBJECTS, columns=["key"]):
            yield from column_texts(batch.column("key"))

    return job.route.send(keys, progress, UploadRecords(root, UPLOADS_PREFIX))


def _objects(job: CopyJob, root: Store, batch: CopyBatch) -> Iterator[ObjectInfo]:
    """The objects of a batch; their modification times do not matter any more."""
    first_row, rows = batch.first_row, batch.rows
    for piece in read_ref(root, job.due, OBJECTS, columns=_COLUMNS, first_row=first_row, rows=rows):
        columns = (piece.column(name).to_pylist() for name in _COLUMNS)
        yield from map(ObjectInfo, *columns, repeat(0))


_WORK_ABANDONED_US = 7 * 86_400 * 1_000_000


def end_copy(
    plan: CopyPlan, job: CopyJob | None, report: BatchReport, *, progress: Progress
) -> CopyDocument:
    """Write the record of a copy; there is no job if nothing had to be copied."""
    progress.start("publish")
    root = plan.state.root
    receipts, redundant = _receipts(root, plan, job)
    before = read_record(root)
    with scratch() as folder:
        rows = _copies(root, plan, receipts, folder)
        if before and before.source == plan.state.origin and before != plan.record:
            rows = _and_others(rows, read_ref(root, before.manifest, OBJECTS))
        unlisted = plan.unlisted_file
        failures = gather_failures(root, report.lists, failures_key, folder, unlisted)
        document = write_copies(
            root,
            rows,
            folder,
            source=plan.state.origin,
            failures=failures,
            stopped=bool(report.stopped) or _was_stopped(plan),
        )
    due = [job.due] if job else []
    replaced = [*receipts, *redundant, *plan.receipts, *due, *record_files(before)]
    remove_files(root, replaced, document)
    if job and root.features.place:  # in a bucket
        now_us = root.head(COPY_KEY).modified_us
        UploadRecords(root, UPLOADS_PREFIX).abort_abandoned(now_us)
    progress.finish("publish")
    return document


def write_copies(
    root: Store,
    rows: Iterator[pa.RecordBatch],
    folder: Path,
    *,
    source: Origin,
    failures: ManifestRef | None,
    stopped: bool,
) -> CopyDocument:
    """Write the manifest of all verified copies, and the record that names it.

    ``rows`` are of schema OBJECTS and ordered by key; ``failures`` are the objects that could not
    be copied; ``stopped`` says that some were not tried because too much failed.
    """
    tally = _Tally()
    file = write_manifest(folder / "manifest.parquet", OBJECTS, map(tally.add, rows))
    document = CopyDocument(
        source=source,
        manifest=put_named(root, manifest_key(file.sha256), file),
        bytes=tally.bytes,
        digest=tally.digest.hexdigest(),
        checks=dict(sorted(tally.checks.items())),
        failures=failures,
        stopped=int(stopped),
    )
    put_record(root, document)
    return document


def record_files(document: CopyDocument | None) -> list[ManifestRef]:
    files = (document.manifest, document.failures) if document else ()
    return [file for file in files if file]


def remove_files(root: Store, refs: Iterable[ManifestRef], document: CopyDocument) -> None:
    """Delete what a record replaces, and what killed runs left in the work folder a week ago."""
    kept = {ref.key for ref in record_files(document)}
    for key in {ref.key: None for ref in refs if ref.key not in kept}:
        root.delete(key)
    work = list(listed(root, WORK_PREFIX))
    if work:
        now_us = root.head(COPY_KEY).modified_us  # by the store's clock, as the others
        for info in work:
            if now_us - info.modified_us > _WORK_ABANDONED_US:
                root.delete(info.key)


def _was_stopped(plan: CopyPlan) -> bool:
    """Whether some objects were not tried before, and are not now, as only failures are."""
    return plan.settings.retry_failed and plan.record is not None and bool(plan.record.stopped)


def _receipts(
    root: Store, plan: CopyPlan, job: CopyJob | None
) -> tuple[list[ManifestRef], list[ManifestRef]]:
    """The receipts of what was due in this copy, and partial ones that are redundant."""
    if job is None:
        return [], []
    receipts, order = find_receipts(root, copy_place(plan.state.origin)), job.due.sha256[:16]
    return list(receipts.of_order.get(order, ())), list(receipts.redundant.get(order, ()))


def _copies(
    root: Store, plan: CopyPlan, receipts: list[ManifestRef], folder: Path
) -> Iterator[pa.RecordBatch]:
    """All verified copies, ordered by key: those that stood, and those that were made."""
    made = chain.from_iterable(read_ref(root, ref, OBJECTS) for ref in receipts)
    ties = ("modified", "etag", "mirror_etag")
    with closing(sort(Stream(OBJECTS, made), ("key",), ties=ties, work_dir=folder)) as new:
        latest = Stream(OBJECTS, map(_lasts, whole_keys(new, "key")))
        verified = Stream(OBJECTS, plan.verified.read())
        for old, copied in aligned(verified, latest, ("key",)):
            yield in_order(old, copied)


def _lasts(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The last row of each key: a batch that was repeated may have copied an object twice."""
    keys = rows.column("key")
    last = np.ones(len(keys), np.bool_)
    last[:-1] = pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    return rows.filter(pa.array(last))


def _and_others(
    rows: Iterator[pa.RecordBatch], others: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows, and what another run, which has ended in the meantime, has under other keys."""
    for batch, other in aligned(Stream(OBJECTS, rows), Stream(OBJECTS, others), ("key",)):
        new = places(other.column("key"), batch.column("key")) < 0
        yield in_order(batch, other.filter(pa.array(new)))


class _Tally:
    """Adds up the rows of a manifest."""

    def __init__(self) -> None:
        self.bytes = 0
        self.digest = RowDigest()
        self.checks: Counter[str] = Counter()

    def add(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        self.bytes += pc.sum(rows.column("size_bytes"), min_count=0).as_py()
        self.digest.update_batch(rows.select(IDENTITY))
        for each in rows.column("check").value_counts().to_pylist():
            self.checks[each["values"]] += each["counts"]
        return rows
