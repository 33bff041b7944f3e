"""What an earlier attempt at a batch finished, so that a task that is retried does not repeat it.

A run that continues an earlier one plans other batches; this is for the same batch of the same job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from larder.errors import NotFoundError, ObjectError
from larder.limits import map_ahead
from larder.manifest.schemas import OBJECTS, SAMPLES
from larder.pipeline import copied
from larder.pipeline.copy_place import MIRROR, CopyPlace
from larder.pipeline.manifests import read_ref
from larder.pipeline.receipts import Shard, partial_receipts
from larder.pipeline.standing import is_noted
from larder.progress import Progress
from larder.store.base import ObjectInfo, Store
from larder.transfer.copy import Copy
from larder.versions import layout

__all__ = ["copied_before", "shards_before"]

_Pair = tuple[str, str, str]
"""Key of an object, its etag in the source, and that of its copy."""


def copied_before(
    root: Store,
    batch: str,
    objects: Callable[[], Iterable[ObjectInfo]],
    concurrency: int,
    progress: Progress,
    place: CopyPlace = MIRROR,
) -> list[Copy]:
    """The copies in receipts of this batch that still match them.

    Args:
        root: The store of the copies: the dataset's root.
        batch: The batch's name in `larder.pipeline.copies.CopyReceipts`.
        objects: Returns the listed objects of the batch.
        concurrency: Number of concurrent requests.
        progress: May stop this; nothing is reported, because the earlier attempt did that.
        place: Where the copies and receipts are in the store.

    Raises:
        DamageError: A receipt is damaged.
        LarderError: The storage refuses access, or ``progress`` stops it.
    """
    known: dict[_Pair, Copy] = {}
    for ref in copied.partial_receipts(root, batch, place):
        for rows in read_ref(root, ref, OBJECTS):
            modified = rows.column("modified").cast(pa.int64())
            rows = rows.set_column(OBJECTS.get_field_index("modified"), "modified", modified)
            for copy in map(Copy, *(column.to_pylist() for column in rows.columns)):
                known[copy.key, copy.etag, copy.mirror_etag] = copy
    keys = {key for key, _, _ in known}
    if not keys:
        return []

    def find(info: ObjectInfo) -> Copy | None:
        try:
            there = root.head(place.objects + info.key)
        except ObjectError:
            return None
        copy = known.get((info.key, info.etag, there.etag))
        return copy if copy and there.size_bytes == info.size_bytes else None

    found: list[Copy] = []
    with ThreadPoolExecutor(concurrency, thread_name_prefix="check") as pool:
        asked = (info for info in objects() if info.key in keys)
        for row in map_ahead(pool, find, asked, window=4 * concurrency):
            progress.advance("mirror")
            found += [row] if row else []
    return found


def shards_before(
    root: Store, segment: str, batch: str
) -> dict[tuple[str, str], tuple[Shard, list[pa.RecordBatch]]]:
    """The shards in receipts of this batch, with their rows, by split and name.

    Shards whose objects do not match their receipt are left out.

    Args:
        root: The dataset's root.
        segment: ID of the segment that is being built.
        batch: The batch's name in `larder.pipeline.receipts.ShardReceipts`.

    Raises:
        DamageError: A receipt or its rows are damaged.
        StoreError: The storage refuses access.
    """
    found: dict[tuple[str, str], tuple[Shard, list[pa.RecordBatch]]] = {}
    for receipt in partial_receipts(root, segment, batch):
        first_row = 0
        # Read once: rows that were read for one shard would keep those of many others in memory.
        rows = pa.Table.from_batches(read_ref(root, receipt.rows, SAMPLES), SAMPLES)
        for shard in receipt.shards:
            if _stands(root, segment, shard):
                own = rows.slice(first_row, shard.samples).to_batches()
                found[shard.split, shard.name] = shard, own
            first_row += shard.samples
    return found


def _stands(root: Store, segment: str, shard: Shard) -> bool:
    def find(path: str) -> ObjectInfo | None:
        try:
            return root.head(layout.shards_prefix(segment) + path)
        except NotFoundError:
            return None

    return is_noted(shard, find)
