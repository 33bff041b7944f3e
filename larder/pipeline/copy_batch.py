"""Calls the copy engine for one batch, and reports all its failures, also if it stops early."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pyarrow as pa

from larder.config.models.cluster import Copy as CopyConfig
from larder.copy.copy_limits import CopyLimits, FailureRate
from larder.copy.engine import copy_batch
from larder.copy.uploads import UploadRecords
from larder.errors import SHOWN_FAILURES, Failure, FatalError, RetryableError
from larder.jobs.results import BatchReport
from larder.manifest.files import ManifestFile, ManifestWriter, read_manifest, write_manifest
from larder.manifest.schemas import FAILURES
from larder.pipeline.copy_receipts import CopyPlace, CopyReceipts, copied_before
from larder.pipeline.job import ManifestRef, put_named, scratch
from larder.pipeline.manifests import read_ref
from larder.progress import Progress
from larder.store.base import ObjectInfo, Store


class _Noted(FailureRate):
    """Also keeps the failures: the engine raises an error when it stops early."""

    def __init__(self, max_rate: float) -> None:
        super().__init__(max_rate)
        self.failures: list[Failure] = []

    def failed(self, failure: Failure) -> None:
        self.failures.append(failure)
        super().failed(failure)


def copied_batch(
    source: Store,
    root: Store,
    objects: Callable[[], Iterable[ObjectInfo]],
    *,
    name: str,
    count: int,
    place: CopyPlace,
    uploads: str,
    list_key: Callable[[str], str],
    config: CopyConfig,
    adopt: bool,
    concurrent_batches: int,
    progress: Progress,
) -> BatchReport:
    """Copy one batch, write receipts, even if it is stopped, and a list of what failed.

    What receipts of an earlier attempt at the same batch list is not copied again. ``name`` is
    unique within the place; ``uploads`` is the prefix of the records of large objects in progress;
    ``list_key`` returns the key of the list of failures, given its sha256; ``adopt``: another
    engine may have copied some objects already. Concurrent batches share the limits.
    """
    concurrency = max(1, config.concurrency // concurrent_batches)
    noted = _Noted(config.max_failure_rate)
    limits = CopyLimits.of(config, concurrent_batches=concurrent_batches, adopt=adopt)
    with (
        scratch() as folder,
        CopyReceipts(
            root, name, folder, count=count, concurrent_batches=concurrent_batches, place=place
        ) as receipts,
    ):
        before = copied_before(root, name, objects, concurrency, progress, place)
        receipts.carry(before)
        done = {copy.key for copy in before}
        stopped = ""
        try:
            copy_batch(
                source,
                root,
                (info for info in objects() if info.key not in done),
                prefix=place.objects,
                limits=replace(limits, failures=noted),
                progress=progress,
                copied=receipts.add,
                awake=receipts.leave_if_due,
                uploads=UploadRecords(root, uploads),
            )
        except (FatalError, RetryableError) as error:
            outage = isinstance(error, RetryableError) and not receipts.done.count
            if outage or not noted.reason or error.code not in ("run.failed", "store.unavailable"):
                raise
            stopped = noted.reason
        failures = sorted(noted.failures, key=lambda each: each.key.encode(errors="surrogatepass"))
        return BatchReport(
            done=receipts.done,
            failures=tuple(failures[:SHOWN_FAILURES]),
            failed=len(failures),
            lists=put_failures(root, failures, list_key, folder),
            stopped=stopped,
        )


def put_failures(
    root: Store, failures: Sequence[Failure], key: Callable[[str], str], folder: Path
) -> tuple[ManifestRef, ...]:
    """Write the failures of a batch, if there are any; ``key`` is given the sha256 of the list."""
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
    found = put_named(root, key(file.sha256), file)
    for ref in lists:
        root.delete(ref.key)
    return found


def read_failures(root: Store, ref: ManifestRef) -> Iterator[pa.RecordBatch]:
    yield from read_ref(root, ref, FAILURES)
