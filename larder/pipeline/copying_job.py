"""The job of a copy: what its batches need to know, small enough for a task on any machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import repeat

import numpy as np
import pyarrow as pa

from larder.copy.copy_limits import CopyLimits
from larder.copy.uploads import UploadRecords
from larder.jobs.results import BatchReport, Totals
from larder.manifest.schemas import OBJECTS
from larder.pipeline.copy_batch import copied_batch
from larder.pipeline.copy_receipts import BATCH_OBJECTS, CopyPlace, batch_name
from larder.pipeline.copying_plan import CopyPlan
from larder.pipeline.copying_record import UPLOADS_PREFIX, copy_place, work_key
from larder.pipeline.copying_settings import CopySettings
from larder.pipeline.job import CopyBatch, ManifestRef, put_named
from larder.pipeline.manifests import read_ref
from larder.pipeline.route import Route, SentAhead
from larder.progress import Progress
from larder.samples.columns import column_texts
from larder.store.base import ObjectInfo, Store


@dataclass(frozen=True, slots=True)
class CopyJob:
    """What the steps of one copy share.

    ``due`` is a manifest of schema OBJECTS: the objects to copy, whose number and size ``copies``
    has. ``adopt``: another engine may have copied some of them already.
    """

    settings: CopySettings
    place: CopyPlace
    due: ManifestRef
    copies: Totals
    adopt: bool = False

    @property
    def route(self) -> Route:
        settings = self.settings
        return Route(
            settings.source,
            settings.storage,
            settings.open_root().url,
            self.place.objects,
            settings.limits,
            self.copies,
        )


def begin_copy(plan: CopyPlan) -> CopyJob:
    """Put the list of what is due into the storage, where every task finds it."""
    root, file = plan.known.root, plan.due
    due = put_named(root, work_key("due", file.sha256), file)
    return CopyJob(plan.located, copy_place(plan.known.origin), due, plan.copies)


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
    for found in read_ref(root, job.due, OBJECTS, columns=_COLUMNS, first_row=first_row, rows=rows):
        columns = (found.column(name).to_pylist() for name in _COLUMNS)
        yield from map(ObjectInfo, *columns, repeat(0))
