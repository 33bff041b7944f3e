"""The mirror of a dataset: a copy of the objects that its samples are read from.

This module finds missing copies, looks up recorded ones, and measures; `larder.copy` copies.

The measured pace of a copy is written to *work/measured.json* below the dataset's root, so that the
next plan can estimate a time. It is a hint: if it is missing or unreadable, a plan names no time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.models.cluster import Cluster
from larder.config.models.dataset import Dataset
from larder.copy.copy_matches import uncopied
from larder.copy.copy_place import CopyPlace, Origin
from larder.copy.copy_plan import row_totals
from larder.copy.copy_receipts import find_receipts
from larder.copy.copy_record import CopyDocument, read_record, record_rows, sorted_receipts
from larder.copy.route import Route
from larder.copy.site import Site
from larder.disk import scratch
from larder.errors import LarderError
from larder.jobs.manifests import read_ref
from larder.jobs.results import Totals
from larder.manifest.manifest_files import ManifestFile, ManifestWriter, write_manifest
from larder.manifest.query import Stream, tables_in
from larder.manifest.schemas import COPIES, DUE, OBJECTS, SAMPLE_ORDER, columns
from larder.manifest.sealed import StoredFile, from_plain, seal, unseal
from larder.manifest.sort import sorted_query
from larder.samples.grouping import group_parts
from larder.samples.sample_order import objects_of
from larder.segments.segment_job import Job, open_root, put_work
from larder.segments.stores import root_url
from larder.store import object_url
from larder.store.base import Store
from larder.store.own_files import listed, read_optional
from larder.versions import layout

PLACE = CopyPlace(Origin(), layout.MIRROR_PREFIX, layout.COPIES_PREFIX)
"""The mirror and the record of its copies, below the dataset's root."""


def due_copies(
    order: Path, root: Store, *, md5: bool, work_dir: Path
) -> tuple[ManifestFile, Totals]:
    """Find the objects of an order that the mirror lacks; the manifest is of schema DUE."""
    prefix = layout.MIRROR_PREFIX
    mirrored = (info._replace(key=info.key.removeprefix(prefix)) for info in listed(root, prefix))
    found = find_receipts(root, PLACE)
    record = record_rows(root, PLACE, read_record(root, PLACE))
    objects = (batch.select(DUE.names) for batch in objects_of(order))
    copies = Totals()
    with (
        sorted_receipts(root, found, work_dir) as receipts,
        ManifestWriter(work_dir / "due.parquet", DUE) as due,
    ):
        for batch in uncopied(objects, mirrored, receipts, record, md5=md5, work_dir=work_dir):
            due.append_batch(batch)
            copies += row_totals(batch)
    return due.file, copies


def mirror_route(dataset: Dataset, cluster: Cluster, copies: Totals) -> Route:
    root = root_url(dataset.name, cluster)
    return Route(dataset.source, cluster.storage, root, PLACE, cluster.copy_, copies)


def has_receipts(job: Job) -> bool:
    """Return whether a killed run has left receipts that no record has."""
    return bool(find_receipts(open_root(job), PLACE))


def put_copies(job: Job) -> StoredFile:
    """Write the entries of the mirror's record for the objects that shards are made from."""
    root = open_root(job)
    order = read_ref(root, job.manifests["order"], SAMPLE_ORDER, columns=["parts"])
    record = record_rows(root, PLACE, read_record(root, PLACE))
    with scratch() as folder, tables_in(folder, job.cluster.memory.tables_bytes):
        rows = copies_of(order, record, folder)
        file = write_manifest(folder / "copies.parquet", COPIES, rows)
        return put_work(root, job.segment, "copies", file)


def copies_of(
    order: Iterable[pa.RecordBatch], record: Iterable[pa.RecordBatch], work_dir: Path
) -> Iterator[pa.RecordBatch]:
    """Look up the parts of samples in a record; yields rows of schema COPIES, in the same order."""
    inputs = {"record": Stream(OBJECTS, record), "parts": Stream(_PARTS, _numbered(order))}
    rows = sorted_query(_COPIED, inputs, _COPIES, ["place"], work_dir=work_dir)
    for samples in group_parts(rows):
        yield pa.record_batch([samples.parts(_FIELDS)], COPIES)


_FIELDS = tuple(COPIES.field("copies").type.value_type)
_PLACE = columns(sample="int64", place="int64")
_PARTS = pa.schema([*_PLACE, *columns(key="string", etag="string")])
_COPIES = pa.schema([*_PLACE, *_FIELDS])
_COPIED = """
    SELECT sample, place, nullif(mirror_etag, etag) AS mirror_etag, checksum
    FROM record RIGHT JOIN parts USING (key, etag)
"""
"""For objects that the record lacks, the plan knew that both etags are the MD5 of the content."""


def _numbered(order: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the parts of samples, each with its sample's number and its place among all parts."""
    sample = place = 0
    for batch in order:
        lists = batch.column("parts")
        parts = lists.flatten()
        samples = pc.list_parent_indices(lists).to_numpy() + sample
        numbers = (pa.array(each) for each in (samples, np.arange(len(parts)) + place))
        yield pa.record_batch([*numbers, parts.field("key"), parts.field("etag")], _PARTS)
        sample, place = sample + len(batch), place + len(parts)


def failed_hint(job: Job, record: CopyDocument) -> str:
    assert record.failures is not None, "some objects failed"
    listed_in = object_url(job.root, record.failures.path)
    hint = "nothing was published; fix or exclude them, then run again to continue"
    return f"{hint}; they are listed in {listed_in}"


ENOUGH = Totals(1_000, 64_000_000)
"""The smallest copy that is measured: fewer objects and fewer bytes say little about the next."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The measured pace of a copy; another pair of ``source`` and ``storage`` has another pace."""

    objects: int
    bytes: int
    milliseconds: int
    source: str
    storage: str

    def expected_seconds(self, copies: Totals) -> float:
        """Estimate the time of other copies, from their bytes or their number: the longer."""
        times = max(copies.bytes / self.bytes, copies.count / self.objects)
        return self.milliseconds / 1000 * times


def read_measured(root: Store, dataset: Dataset, cluster: Cluster) -> Measured | None:
    """Read the measurement of an earlier run between these places, if there is a valid one."""
    key = layout.MEASURED_KEY
    with suppress(LarderError, ValueError):
        data = read_optional(root, key)
        if data is None:
            return None
        measured = from_plain(Measured, unseal(data, object_url(root.url, key)))
        is_valid = min(measured.objects, measured.bytes, measured.milliseconds) > 0
        if is_valid and (measured.source, measured.storage) == _places(dataset, cluster):
            return measured
    return None


def write_measured(job: Job, copied: Totals, seconds: float) -> None:
    """Record the pace of a large enough copy; a refusal by the store is ignored."""
    enough = copied.count >= ENOUGH.count or copied.bytes >= ENOUGH.bytes
    if enough and copied.bytes:
        places = _places(job.dataset, job.cluster)
        measured = Measured(copied.count, copied.bytes, round(1000 * seconds), *places)
        with suppress(LarderError):
            open_root(job).put(layout.MEASURED_KEY, seal(measured))


def _places(dataset: Dataset, cluster: Cluster) -> tuple[str, str]:
    return Site.of(dataset.source).name, Site.of(cluster.storage).name
