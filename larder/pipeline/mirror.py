"""The mirror step: the objects that the local side lacks, in batches with receipts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from typing import Any

import pyarrow as pa

from larder.errors import FatalError
from larder.limits import ByteBudget
from larder.manifest.files import ManifestWriter, read_manifest, write_manifest
from larder.manifest.schemas import OBJECTS
from larder.manifest.sort import sort_batches
from larder.pipeline.job import (
    Job,
    Ref,
    RowRange,
    fetch_manifest,
    opened_root,
    opened_source,
    put_named,
    scratch,
)
from larder.pipeline.plan import mirror_receipts
from larder.pipeline.results import BatchReport, Count
from larder.progress import Progress
from larder.store.base import ObjectInfo
from larder.transfer.mirror import copy_batch
from larder.transfer.receipts import COPIED, copied_batch, object_rows
from larder.versions import layout

__all__ = ["mirror_batch", "mirror_batches", "seal_mirror"]

BATCH_OBJECTS = 50_000
"""A batch ends here too, so that its receipt stays small when objects are."""


def mirror_batches(job: Job) -> list[RowRange]:
    """The copies to make, cut into batches of about ``runner.batch_bytes``."""
    if job.copies is None:
        return []
    with opened_root(job) as root:
        path = fetch_manifest(root, job.copies)
    sizes = chain.from_iterable(
        batch.column("size_bytes").to_pylist()
        for batch in read_manifest(path, OBJECTS, columns=["size_bytes"])
    )
    return list(_cut(sizes, job.cluster.runner.batch_bytes))


def _cut(sizes: Iterable[int], batch_bytes: int) -> Iterator[RowRange]:
    first = rows = total_bytes = 0
    for size_bytes in sizes:
        if rows and (total_bytes + size_bytes > batch_bytes or rows >= BATCH_OBJECTS):
            yield RowRange(first, rows, total_bytes)
            first, rows, total_bytes = first + rows, 0, 0
        rows += 1
        total_bytes += size_bytes
    if rows:
        yield RowRange(first, rows, total_bytes)


def mirror_batch(job: Job, batch: RowRange, *, progress: Progress, beside: int = 1) -> BatchReport:
    """Copy one batch and leave a receipt of what was copied.

    Args:
        job: The run.
        batch: Rows of ``job.copies``.
        progress: Told of stage ``mirror``.
        beside: Batches that run at once and share ``copy.concurrency`` and ``copy.memory_bytes``.

    Raises:
        StoreError: A store refuses everything.
        RetryableError: A store went on failing.
    """
    assert job.copies is not None, "there is nothing to mirror"
    limits = job.cluster.copy_
    with opened_root(job) as root, opened_source(job) as source, scratch() as folder:
        rows = read_manifest(
            fetch_manifest(root, job.copies), OBJECTS, first_row=batch.first_row, rows=batch.rows
        )
        result = copy_batch(
            source,
            root,
            object_rows(rows),
            prefix=layout.mirror_prefix(),
            concurrency=max(1, limits.concurrency // beside),
            budget=ByteBudget(max(1, limits.memory_bytes // beside)),
            progress=progress,
        )
        if result.copied:
            receipt = [copied_batch(result.copied)]
            file = write_manifest(folder / "receipt.parquet", COPIED, receipt)
            put_named(root, f"{layout.copies_prefix(job.segment)}{file.sha256}.parquet", file)
    done = Count(len(result.copied), result.bytes)
    return BatchReport(done=done, failures=result.failures, failed=len(result.failures))


def seal_mirror(job: Job, *, progress: Progress) -> Ref | None:
    """One manifest of all mirrored objects, from what was there and the receipts.

    Args:
        job: The run.
        progress: Not told: it takes no time to speak of.

    Returns:
        Ref of schema COPIED, ordered by key; None without a mirror.
    """
    if job.copies is None or job.kept is None:
        return None
    with opened_root(job) as root, scratch() as folder:
        refs = chain([job.kept], mirror_receipts(root, job.segment))
        batches = chain.from_iterable(
            read_manifest(fetch_manifest(root, ref), COPIED) for ref in refs
        )
        ordered = sort_batches(batches, COPIED, ["key", "modified"], work_dir=folder)
        inventory = read_manifest(fetch_manifest(root, job.inventory), OBJECTS)
        with ManifestWriter(folder / "mirror.parquet", COPIED) as writer:
            writer.append(_current(object_rows(inventory), _rows(ordered)))
        missing = job.copies.rows + job.kept.rows - writer.file.rows
        if missing:
            message = f"{missing} objects were to be mirrored and have no receipt"
            raise FatalError("run.internal", message, where=root.url, hint="run again")
        key = layout.manifest_key(job.version, "mirror", writer.file.sha256)
        return put_named(root, key, writer.file)


Row = tuple[Any, ...]


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _current(inventory: Iterable[ObjectInfo], copied: Iterable[Row]) -> Iterator[Row]:
    """For each object the last copy of the etag that the inventory has; both ordered by key."""
    wanted = iter(inventory)
    info = next(wanted, None)
    for key, rows in groupby(copied, key=lambda row: row[0]):
        while info is not None and info.key.encode() < key.encode():
            info = next(wanted, None)
        if info is not None and info.key == key:
            fitting = [row for row in rows if row[2] == info.etag]
            yield from fitting[-1:]
