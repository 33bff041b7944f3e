"""The step of a copy that moves bytes: one batch, verified, with receipts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import repeat

from larder.copy.uploads import UploadRecords
from larder.manifest.schemas import OBJECTS
from larder.pipeline.ahead import SentAhead
from larder.pipeline.copied import batch_name
from larder.pipeline.copying_job import CopyJob
from larder.pipeline.copying_record import UPLOADS_PREFIX, work_key
from larder.pipeline.engine import copied_batch
from larder.pipeline.job import CopyBatch
from larder.pipeline.manifests import read_ref
from larder.pipeline.results import BatchReport
from larder.progress import Progress
from larder.samples.columns import column_texts
from larder.store.base import ObjectInfo, Store

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
        uploads=UPLOADS_PREFIX,
        list_key=partial(work_key, f"failed-{name}"),
        config=job.settings.limits,
        adopt=job.adopt,
        concurrent_batches=concurrent_batches,
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
