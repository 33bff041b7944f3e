"""The end of a copy: the record of all copies, and the list of failures.

Files are written before the file that names them: the manifest and the list of failures, then
copy.json. Only then are replaced files deleted: receipts, lists and the manifest before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.copy.copy_job import CopyJob
from larder.copy.copy_matches import in_order, places
from larder.copy.copy_receipts import CopyReceipt, find_receipts
from larder.copy.copy_record import (
    CopyDocument,
    check_kept,
    read_record,
    record_rows,
    sorted_receipts,
    write_record,
)
from larder.copy.route import Route
from larder.copy.uploads import UploadRecords
from larder.disk import scratch
from larder.jobs.manifests import put_named, read_ref
from larder.jobs.results import BatchReport
from larder.manifest.manifest_files import ManifestFile, read_manifest, write_manifest
from larder.manifest.query import Stream
from larder.manifest.schemas import FAILURES, OBJECTS
from larder.manifest.sealed import StoredFile
from larder.manifest.sort import SortedFile, aligned, write_rows
from larder.progress import Progress
from larder.samples.arrow_columns import arrow_flags, column_flags
from larder.store.base import Store


class EarlierCopies(NamedTuple):
    """Earlier copies that the plan knows, for the record.

    ``copies`` stay as they are (schema OBJECTS, ordered by key); they were found in ``record`` and
    ``receipts``. ``unlisted`` are paths in the source that cannot be listed (schema FAILURES).
    """

    copies: SortedFile | None = None
    record: CopyDocument | None = None
    receipts: Sequence[CopyReceipt] = ()
    unlisted: ManifestFile | None = None


def end_copy(
    route: Route,
    job: CopyJob | None,
    report: BatchReport,
    earlier: EarlierCopies,
    *,
    progress: Progress,
) -> CopyDocument:
    """Write the record of a copy; ``job`` is None if nothing had to be copied.

    The record includes copies that another run has recorded, or written receipts of, since the
    plan.
    """
    del progress  # the caller says which stage this step is part of
    root, place = route.open_root(), route.place
    receipts = find_receipts(root, place)
    with scratch() as folder:
        counted = frozenset(earlier.receipts)
        new = [each for each in receipts if each not in counted]
        made = write_rows(Stream(OBJECTS, _latest(root, new, folder)), folder / "made.arrow")
        if not root.features.local_path:
            check_kept(root, place.objects, made.read())
        before = read_record(root, place)  # once the receipts that another run may delete are read
        earlier_rows = earlier.copies.read() if earlier.copies else iter(())
        rows = _over(made.read(), earlier_rows)
        if before and before.source == place.origin and before != earlier.record:
            rows = _over(rows, record_rows(root, place, before))
        replaced = [each.manifest for each in (*receipts, *earlier.receipts)]
        replaced += [*report.lists, *([job.due] if job else []), *(before.files if before else [])]
        failures = _gathered_failures(root, route, report.lists, earlier.unlisted, folder)
        document = write_record(root, place, rows, folder, failures=failures, replaced=replaced)
    if job and root.features.uploads:
        now_us = root.head(place.document).clock_us
        UploadRecords(root, place.uploads).abort_recorded(now_us)
    return document


def _latest(root: Store, receipts: Iterable[CopyReceipt], folder: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of receipts, ordered by key; only the latest if two runs copied an object."""
    with sorted_receipts(root, receipts, folder) as rows:
        for batch in rows:
            keys = batch.column("key")
            last = np.ones(len(keys), np.bool_)
            last[:-1] = column_flags(pc.not_equal(keys[1:], keys[:-1]))
            yield batch.filter(arrow_flags(last))


def _over(
    rows: Iterable[pa.RecordBatch], others: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield rows, and ``others`` that have other keys; all are ordered by key."""
    sides = Stream(OBJECTS, rows), Stream(OBJECTS, others)
    for batch, other in aligned(sides, ("key",)):
        new = places(other.column("key"), batch.column("key")) < 0
        yield in_order(batch, other.filter(arrow_flags(new)))


def _gathered_failures(
    root: Store,
    route: Route,
    refs: Sequence[StoredFile],
    unlisted: ManifestFile | None,
    folder: Path,
) -> StoredFile | None:
    """Put the failures of all batches into one list, after the paths that cannot be listed."""
    if not refs and unlisted is None:
        return None
    first = read_manifest(unlisted.path, FAILURES) if unlisted else iter(())
    rows = chain(first, *(read_ref(root, ref, FAILURES) for ref in refs))
    file = write_manifest(folder / "all-failures.parquet", FAILURES, rows)
    return put_named(root, route.place.file("failures", file.sha256), file, "failures")
