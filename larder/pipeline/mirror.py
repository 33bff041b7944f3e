"""The mirror step: the objects that the storage lacks, in batches with receipts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from larder.errors import FatalError
from larder.limits import ByteBudget
from larder.manifest.files import ManifestFile, read_manifest, write_manifest
from larder.manifest.match import match_rows, take_rows
from larder.manifest.schemas import OBJECTS, SAMPLE_ORDER
from larder.manifest.sort import sort_batches
from larder.pipeline.carry import copied_before
from larder.pipeline.copied import batch_receipts
from larder.pipeline.copies import CopyReceipts
from larder.pipeline.job import (
    Job,
    MirrorRefs,
    RowRange,
    opened_root,
    opened_source,
    put_named,
    put_work,
    scratch,
)
from larder.pipeline.manifests import read_ref
from larder.pipeline.results import BatchReport
from larder.progress import Progress
from larder.store.base import ObjectInfo, Store
from larder.transfer.align import MIRRORED, align_copies
from larder.transfer.mirror import copy_batch
from larder.transfer.receipts import COPIED, object_rows
from larder.versions import layout

__all__ = ["mirror_batch", "mirror_batches", "seal_mirror"]

BATCH_OBJECTS = 50_000
"""A batch ends here too, so that its receipt stays small when objects are."""


def mirror_batches(job: Job) -> list[RowRange]:
    """The copies to make, cut into batches of about ``runner.batch_bytes``."""
    if job.copies is None:
        return []
    with opened_root(job) as root:
        batches = read_ref(root, job.copies, OBJECTS, columns=["size_bytes"])
        sizes = chain.from_iterable(batch.column("size_bytes").to_pylist() for batch in batches)
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


def mirror_batch(
    job: Job, batch: RowRange, *, progress: Progress, concurrent_batches: int = 1
) -> BatchReport:
    """Copy one batch and leave a receipt of what was copied; if it is stopped, of what was by then.

    What an earlier try at the same batch left receipts of is not copied again.

    Args:
        job: The run.
        batch: Rows of ``job.copies``.
        progress: Reports progress of stage ``mirror``.
        concurrent_batches: Batches that run at once and share ``copy.concurrency`` and
            ``copy.memory_bytes``.

    Raises:
        StoreError: A store refuses everything.
        RetryableError: A store went on failing.
    """
    copies, limits = job.copies, job.cluster.copy_
    assert copies is not None, "there is nothing to mirror"
    concurrency = max(1, limits.concurrency // concurrent_batches)
    with opened_root(job) as root, opened_source(job) as source, scratch() as folder:
        first_row, rows = batch.first_row, batch.rows
        name = f"{copies.sha256[:16]}-{first_row:012d}-{rows}"

        def objects(done: Collection[str] = ()) -> Iterator[ObjectInfo]:
            batches = read_ref(root, copies, OBJECTS, first_row=first_row, rows=rows)
            return (info for info in object_rows(batches) if info.key not in done)

        with CopyReceipts(
            root, job.segment, name, folder, count=rows, concurrent_batches=concurrent_batches
        ) as receipts:
            before = copied_before(root, job.segment, name, objects, concurrency, progress)
            receipts.carry(before)
            failures = copy_batch(
                source,
                root,
                objects({row.source.key for row in before}),
                prefix=layout.mirror_prefix(),
                concurrency=concurrency,
                budget=ByteBudget(max(1, limits.memory_bytes // concurrent_batches)),
                progress=progress,
                copied=receipts.add,
                awake=receipts.leave_if_due,
            )
    return BatchReport(done=receipts.done, failures=failures, failed=len(failures))


def seal_mirror(job: Job, *, progress: Progress) -> MirrorRefs | None:
    """Two manifests of all mirrored objects, from what was there and the receipts.

    Args:
        job: The run.
        progress: Not told: it takes no time to speak of.

    Returns:
        Their refs; None without a mirror.
    """
    if job.copies is None or job.kept is None:
        return None
    with opened_root(job) as root, scratch() as folder:
        # The batches of this job are done: their partial receipts say nothing new, and those of
        # earlier runs are in ``kept``.
        refs = chain([job.kept], batch_receipts(root, job.segment))
        receipts = chain.from_iterable(read_ref(root, ref, COPIED) for ref in refs)
        ordered = sort_batches(receipts, COPIED, ["key", "modified"], work_dir=folder)
        inventory = read_ref(root, job.inventory, OBJECTS)
        copies = write_manifest(folder / "mirror.parquet", COPIED, _current(inventory, ordered))
        _check_all(job.copies.rows + job.kept.rows, root, copies)
        parts = align_copies(
            lambda: read_ref(root, job.sample_order, SAMPLE_ORDER, columns=["parts"]),
            read_manifest(copies.path, COPIED),
            work_dir=folder,
        )
        aligned = write_manifest(folder / "parts.parquet", MIRRORED, parts)
        key = layout.manifest_key(job.version, "mirror", copies.sha256)
        return MirrorRefs(
            copies=put_named(root, key, copies),
            parts=put_work(root, job.segment, "mirrored", aligned),
        )


def _check_all(wanted: int, root: Store, copies: ManifestFile) -> None:
    missing = wanted - copies.rows
    if missing:
        message = f"{missing} objects were to be mirrored and have no receipt"
        raise FatalError("run.internal", message, where=root.url, hint="run again")


def _current(
    inventory: Iterable[pa.RecordBatch], copied: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For each object the last copy of the etag that the inventory has; both ordered by key."""
    for objects, copies in match_rows(inventory, copied, COPIED):
        keys = copies.column("key").combine_chunks()
        listed = take_rows(keys, pa.Table.from_batches([objects])).column("etag")
        fitting = copies.filter(pc.equal(copies.column("source_etag"), listed))
        yield from _last_of_each(fitting).to_batches()


def _last_of_each(copies: pa.Table) -> pa.Table:
    keys = copies.column("key").combine_chunks()
    others_follow = pc.not_equal(keys[:-1], keys[1:])
    last = [True] if copies.num_rows else []
    return copies.filter(pa.concat_arrays([others_follow, pa.array(last, pa.bool_())]))
