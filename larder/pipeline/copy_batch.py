"""Calls the copy engine for one batch, and reports all its failures, also if it stops early."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import pyarrow as pa

from larder.copy.copy_limits import CopyLimits
from larder.copy.engine import copy_batch
from larder.disk import scratch
from larder.errors import SHOWN_FAILURES, Failure, FatalError, RetryableError
from larder.jobs.manifests import put_named, read_ref
from larder.jobs.results import BatchReport
from larder.manifest.files import ManifestFile, ManifestWriter, read_manifest, write_manifest
from larder.manifest.reference import ManifestRef
from larder.manifest.schemas import FAILURES
from larder.pipeline.copy_receipts import CopyPlace, CopyReceipts, copied_before
from larder.progress import Progress
from larder.store.base import ObjectInfo, Store


def copied_batch(
    source: Store,
    root: Store,
    objects: Callable[[], Iterable[ObjectInfo]],
    *,
    name: str,
    count: int,
    place: CopyPlace,
    limits: CopyLimits,
    progress: Progress,
) -> BatchReport:
    """Copy one batch, write receipts, even if it is stopped, and a list of what failed.

    What receipts of an earlier attempt at the same batch list is not copied again. ``name`` is
    unique within the place.
    """
    batches, rate = limits.concurrent_batches, limits.failures
    with (
        scratch() as folder,
        CopyReceipts(
            root, name, folder, count=count, concurrent_batches=batches, place=place
        ) as receipts,
    ):
        before = copied_before(root, name, objects, limits.concurrency, progress, place)
        receipts.carry(before)
        done = {copy.key for copy in before}
        stopped = ""
        try:
            copy_batch(
                source,
                root,
                (info for info in objects() if info.key not in done),
                prefix=place.objects,
                limits=limits,
                progress=progress,
                copied=receipts.add,
                awake=receipts.leave_if_due,
            )
        except (FatalError, RetryableError) as error:
            outage = isinstance(error, RetryableError) and not receipts.done.count
            if outage or not rate.reason or error.code not in ("run.failed", "store.unavailable"):
                raise
            stopped = rate.reason
        failures = rate.failures
        return BatchReport(
            done=receipts.done,
            failures=failures[:SHOWN_FAILURES],
            failed=len(failures),
            lists=_put_failures(root, failures, partial(place.failures_key, name), folder),
            stopped=stopped,
        )


def _put_failures(
    root: Store, failures: Sequence[Failure], key: Callable[[str], str], folder: Path
) -> tuple[ManifestRef, ...]:
    if not failures:
        return ()
    with ManifestWriter(folder / "failures.parquet", FAILURES) as writer:
        writer.append((each.key, each.code, each.message, each.attempts) for each in failures)
    return (put_named(root, key(writer.file.sha256), writer.file),)


def gather_failures(
    root: Store,
    lists: Sequence[ManifestRef],
    key: Callable[[str], str],
    folder: Path,
    unlisted: ManifestFile | None = None,
) -> ManifestRef | None:
    """Write the failures of all batches into one list; the lists of the batches are removed.

    ``key`` is given the sha256 of the list; what is in ``unlisted``, a local list, comes first.
    """
    if not lists and unlisted is None:
        return None
    first = read_manifest(unlisted.path, FAILURES) if unlisted else iter(())
    rows = chain(first, *(read_ref(root, ref, FAILURES) for ref in lists))
    file = write_manifest(folder / "all-failures.parquet", FAILURES, rows)
    gathered = put_named(root, key(file.sha256), file)
    for ref in lists:
        root.delete(ref.key)
    return gathered


def read_failures(root: Store, ref: ManifestRef) -> Iterator[pa.RecordBatch]:
    yield from read_ref(root, ref, FAILURES)
