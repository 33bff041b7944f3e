"""The mirror step: copies missing objects to the storage, in batches with receipts.

How fast it copied is written to *work/measured.json* below the dataset's root, for the time that
the next plan says. It is a hint: if it is missing or unreadable, a plan says no time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import repeat

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.models import Cluster, Dataset
from larder.copy.copy_limits import CopyLimits
from larder.copy.mirror_choice import mirrors
from larder.copy.site import Site
from larder.copy.uploads import UploadRecords
from larder.disk import scratch
from larder.errors import LarderError
from larder.jobs.manifests import read_ref
from larder.jobs.results import BatchReport, RunError, Totals
from larder.manifest.query import Stream
from larder.manifest.schemas import OBJECTS, SAMPLE_ORDER
from larder.manifest.sealed import seal, unseal
from larder.manifest.sort import sort
from larder.pipeline.copy_batch import copied_batch, gather_failures
from larder.pipeline.copy_receipts import BATCH_OBJECTS, MIRROR, batch_name, merge_receipts
from larder.pipeline.job import CopyBatch, Job, open_origin, open_root, root_url
from larder.pipeline.route import Route, SentAhead
from larder.progress import Progress
from larder.samples.columns import column_texts
from larder.samples.order import FROM_PREVIOUS, from_objects
from larder.store import object_url
from larder.store.base import ObjectInfo, Store
from larder.store.own_files import read_optional
from larder.versions import layout

_COLUMNS = ("parts", *FROM_PREVIOUS)
_KEYS = pa.schema([OBJECTS.field("key")])


def mirror_batches(job: Job) -> list[CopyBatch]:
    """The copies to make, in batches of about ``runner.batch_bytes``.

    If there are receipts of too many runs, they are merged first. If there is something to copy,
    uploads that nobody will complete are aborted.
    """
    if not mirrors(job.dataset, job.cluster):
        return []
    root = open_root(job)
    merge_receipts(root)
    batches = read_ref(root, job.sample_order, SAMPLE_ORDER, columns=_COLUMNS)
    cut = list(_cut(_uncopied(batches), job.cluster.runner.batch_bytes))
    if cut:
        UploadRecords(root, layout.UPLOADS_PREFIX).abort_orphans(layout.MIRROR_PREFIX)
    return cut


def mirror_route(dataset: Dataset, cluster: Cluster, copies: Totals) -> Route:
    root, prefix = root_url(dataset, cluster), layout.MIRROR_PREFIX
    return Route(dataset.source, cluster.storage, root, prefix, cluster.copy_, copies)


def send_mirror_ahead(job: Job, copies: Totals, *, progress: Progress) -> SentAhead:
    """Let an engine that copies everything at once go before the batches; see `ahead`."""
    root = open_root(job)
    uploads = UploadRecords(root, layout.UPLOADS_PREFIX)
    with scratch() as folder:

        def keys() -> Iterator[str]:
            batches = read_ref(root, job.sample_order, SAMPLE_ORDER, columns=_COLUMNS)
            rows = Stream(_KEYS, map(_keys_to_copy, batches))
            with closing(sort(rows, ("key",), work_dir=folder)) as ordered:
                for batch in ordered:
                    yield from column_texts(batch.column("key"))

        return mirror_route(job.dataset, job.cluster, copies).send(keys, progress, uploads)


def _keys_to_copy(batch: pa.RecordBatch) -> pa.RecordBatch:
    keys = batch.column("parts").flatten().field("key").filter(pa.array(_to_copy(batch)))
    return pa.record_batch([keys], schema=_KEYS)


def _uncopied(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, int]]:
    """For each row with objects to copy: its number, the number of objects, and their bytes."""
    first_row = 0
    for batch in batches:
        lists = batch.column("parts")
        parts = lists.flatten()
        uncopied = _to_copy(batch)
        sizes = parts.field("size_bytes").to_numpy() * uncopied
        ends = np.cumsum(pc.list_value_length(lists).to_numpy())
        objects, size_bytes = (
            np.diff(np.append(0, np.cumsum(values))[ends], prepend=0)
            for values in (uncopied, sizes)
        )
        for row in np.flatnonzero(objects).tolist():
            yield first_row + row, int(objects[row]), int(size_bytes[row])
        first_row += len(lists)


def _to_copy(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Which parts have to be copied: what has no copy, and is read from its object."""
    lists = batch.column("parts")
    read = np.repeat(from_objects(batch), pc.list_value_length(lists).to_numpy())
    uncopied = lists.flatten().field("mirror_etag").is_null()
    flags: npt.NDArray[np.bool_] = read & uncopied.to_numpy(zero_copy_only=False)
    return flags


def _cut(rows: Iterable[tuple[int, int, int]], batch_bytes: int) -> Iterator[CopyBatch]:
    first = last = objects = total_bytes = 0
    for row, count, size_bytes in rows:
        full = total_bytes + size_bytes > batch_bytes or objects + count > BATCH_OBJECTS
        if objects and full:
            yield CopyBatch(first, last + 1 - first, objects, total_bytes)
            objects = total_bytes = 0
        first, last = (first if objects else row), row
        objects += count
        total_bytes += size_bytes
    if objects:
        yield CopyBatch(first, last + 1 - first, objects, total_bytes)


def mirror_batch(
    job: Job, batch: CopyBatch, *, progress: Progress, concurrent_batches: int = 1
) -> BatchReport:
    """Copy one batch and write a receipt of what was copied, even if it is stopped.

    What receipts of an earlier attempt at the same batch list is not copied again. Concurrent
    batches share ``copy.concurrency`` and ``copy.memory_bytes``.
    """
    name = batch_name(job.sample_order, batch)
    root = open_root(job)
    return copied_batch(
        open_origin(job),
        root,
        partial(_objects, job, root, batch),
        name=name,
        count=batch.objects,
        place=MIRROR,
        limits=CopyLimits.of(
            job.cluster.copy_,
            concurrent_batches=concurrent_batches,
            adopt=job.adopt,
            uploads=UploadRecords(root, MIRROR.uploads),
        ),
        progress=progress,
    )


def listed_failures(job: Job, error: RunError) -> RunError:
    """The error of a run whose copies failed, with all failures in one list that it names."""
    root = open_root(job)
    with scratch() as folder:
        report = gather_failures(root, error.report.lists, layout.failures_key, folder)
    if report is None:
        return error
    where = object_url(root.url, report.key)
    return RunError(error.stage, error.report, f"{error.hint}; they are listed in {where}")


def _objects(job: Job, root: Store, batch: CopyBatch) -> Iterator[ObjectInfo]:
    """The objects that a batch copies; their modification times are not known here."""
    first_row, rows = batch.first_row, batch.rows
    for order in read_ref(
        root, job.sample_order, SAMPLE_ORDER, columns=_COLUMNS, first_row=first_row, rows=rows
    ):
        parts = order.column("parts").flatten().filter(pa.array(_to_copy(order)))
        columns = (parts.field(name).to_pylist() for name in ("key", "size_bytes", "etag"))
        yield from map(ObjectInfo, *columns, repeat(0))


ENOUGH = Totals(1_000, 64_000_000)
"""A copy of fewer objects and fewer bytes says little about the next one."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A copy that was made.

    ``source`` and ``storage`` are their names in plans: another pair has another pace.
    """

    objects: int
    bytes: int
    seconds: float
    source: str
    storage: str

    def expected_seconds(self, copies: Totals) -> float:
        """How long other copies take: as their bytes or their number did, whichever is longer."""
        return self.seconds * max(copies.bytes / self.bytes, copies.count / self.objects)


def read_measured(root: Store, dataset: Dataset, cluster: Cluster) -> Measured | None:
    """What an earlier run measured between these places, if anything."""
    key = layout.MEASURED_KEY
    with suppress(LarderError, TypeError):
        data = read_optional(root, key)
        if data is None:
            return None
        plain = unseal(data, object_url(root.url, key))
        measured = Measured(**{name: plain[name] for name in Measured.__slots__ if name in plain})
        numbers = (measured.objects, measured.bytes, measured.seconds)
        valid = all(isinstance(each, (int, float)) and each > 0 for each in numbers)
        if valid and (measured.source, measured.storage) == _places(dataset, cluster):
            return measured
    return None


def write_measured(job: Job, copied: Totals, seconds: float) -> None:
    """Write down how fast a run has copied, if it was enough; a store's refusal does not matter."""
    enough = copied.count >= ENOUGH.count or copied.bytes >= ENOUGH.bytes
    if enough and copied.bytes and seconds > 0:
        places = _places(job.dataset, job.cluster)
        measured = Measured(copied.count, copied.bytes, seconds, *places)
        with suppress(LarderError):
            open_root(job).put(layout.MEASURED_KEY, seal(asdict(measured)))


def _places(dataset: Dataset, cluster: Cluster) -> tuple[str, str]:
    return Site.of(dataset.source).name, Site.of(cluster.storage).name
