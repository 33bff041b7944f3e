"""The mirror of a dataset: a copy of the objects that its samples are read from.

How fast it copied is written to *work/measured.json* below the dataset's root, for the time that
the next plan says. It is a hint: if it is missing or unreadable, a plan says no time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.models import Cluster, Dataset
from larder.copy.copy_job import CopyJob, begin
from larder.copy.difference import with_copies
from larder.copy.plan import due_rows, row_totals
from larder.copy.receipts import find_receipts, receipt_rows
from larder.copy.record import CopyDocument, CopyPlace, Origin, read_record, record_rows
from larder.copy.route import Route
from larder.copy.site import Site
from larder.disk import scratch
from larder.errors import LarderError, NotFoundError
from larder.jobs.manifests import read_ref
from larder.jobs.results import Totals
from larder.manifest.files import ManifestWriter
from larder.manifest.schemas import DUE, OBJECTS, SAMPLE_ORDER
from larder.manifest.sealed import StoredFile, seal, unseal
from larder.samples.columns import column_flags
from larder.samples.order import FROM_PREVIOUS, from_objects
from larder.segments.segment_job import Job, open_root
from larder.segments.stores import root_url
from larder.store import object_url
from larder.store.base import Store
from larder.store.own_files import listed, read_optional
from larder.versions import layout

PLACE = CopyPlace(Origin(), layout.MIRROR_PREFIX, layout.COPIES_PREFIX)
"""The mirror and the record of its copies, below the dataset's root."""


_COLUMNS = ("parts", *FROM_PREVIOUS)


def objects_with_copies(
    inventory: Iterable[pa.RecordBatch], root: Store, *, md5: bool, work_dir: Path
) -> Iterator[pa.RecordBatch]:
    """An inventory, with the copies in the mirror of objects that have one.

    ``md5``: see `larder.copy.difference.with_copies`.
    """
    prefix = layout.MIRROR_PREFIX
    copies = (info._replace(key=info.key.removeprefix(prefix)) for info in listed(root, prefix))
    receipts = receipt_rows(root, find_receipts(root, PLACE))
    record = record_rows(root, PLACE, read_record(root, PLACE))
    yield from with_copies(inventory, copies, receipts, record, md5=md5, work_dir=work_dir)


def mirror_route(dataset: Dataset, cluster: Cluster, copies: Totals) -> Route:
    root = root_url(dataset, cluster)
    return Route(dataset.source, cluster.storage, root, PLACE, cluster.copy_, copies)


def begin_mirror(job: Job) -> CopyJob | None:
    """The job of copying what has no copy; None if there is nothing to copy."""
    if not job.mirrored:
        return None
    root, copies = open_root(job), Totals()
    with scratch() as folder:
        with ManifestWriter(folder / "due.parquet", DUE) as due:
            samples = read_ref(root, job.sample_order, SAMPLE_ORDER, columns=_COLUMNS)
            for rows in _due(samples):
                due.append_batch(rows)
                copies += row_totals(rows)
        if not copies.count:
            return None
        route = mirror_route(job.dataset, job.cluster, copies)
        return begin(route, job.cluster.runner.batch_bytes, due.file)


def _due(order: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The objects that have no copy and are read from it, in the order of the samples."""
    first_row = 0
    for batch in order:
        counts = pc.list_value_length(batch.column("parts")).to_numpy()
        parts = pa.RecordBatch.from_struct_array(batch.column("parts").flatten())
        samples = np.repeat(np.arange(first_row, first_row + len(counts)), counts)
        uncopied = column_flags(parts.column("mirror_etag").is_null())
        due = np.repeat(from_objects(batch), counts) & uncopied
        yield due_rows(parts.filter(pa.array(due)), pa.array(samples[due]))
        first_row += len(counts)


def has_receipts(job: Job) -> bool:
    """Whether a run that was killed after it had copied has left receipts that no record has."""
    return job.mirrored and bool(find_receipts(open_root(job), PLACE))


def receipts_by_sample(root: Store, job: CopyJob) -> list[tuple[range, StoredFile]]:
    """The receipts of a run, each with the rows of the samples whose objects it has."""
    receipts = find_receipts(root, job.route.place, job.run)
    ends = np.array([[each.rows.start, each.rows.stop - 1] for each in receipts]).reshape(-1, 2)
    samples, first_row = np.zeros_like(ends), 0
    for batch in read_ref(root, job.due, DUE, columns=["sample"]) if receipts else ():
        column = batch.column("sample").to_numpy()
        here = (ends >= first_row) & (ends < first_row + len(column))
        samples[here] = column[ends[here] - first_row]
        first_row += len(column)
    return [
        (range(first, last + 1), receipt.manifest)
        for (first, last), receipt in zip(samples.tolist(), receipts, strict=True)
    ]


def copied_rows(root: Store, receipt: StoredFile) -> Iterator[pa.RecordBatch]:
    """The rows of a receipt; if another run has ended and removed it, those of its record."""
    try:
        yield from read_ref(root, receipt, OBJECTS)
    except NotFoundError:
        yield from record_rows(root, PLACE, read_record(root, PLACE))


def failed_hint(job: Job, record: CopyDocument) -> str:
    """What to do about objects that could not be copied."""
    assert record.failures is not None, "some objects failed"
    listed_in = object_url(root_url(job.dataset, job.cluster), record.failures.path)
    hint = "nothing was published; fix or exclude them, then run again to continue"
    return f"{hint}; they are listed in {listed_in}"


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
