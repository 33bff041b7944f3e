"""What an earlier try at a batch finished: a task that is repeated does not do it again.

A run that is carried on plans other batches; this is for the same batch of the same job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from larder.errors import NotFoundError, ObjectError
from larder.limits import map_ahead
from larder.manifest.schemas import OBJECTS, SAMPLES
from larder.pipeline import copied
from larder.pipeline.manifests import read_ref
from larder.pipeline.receipts import Shard, partial_receipts
from larder.pipeline.standing import is_noted
from larder.progress import Progress
from larder.store.base import ObjectInfo, Store
from larder.transfer.copy import Copy
from larder.versions import layout

__all__ = ["copied_before", "shards_before"]

_Pair = tuple[str, str, str]
"""Key of an object, its etag at the source, and that of its copy."""


def copied_before(
    root: Store,
    batch: str,
    objects: Callable[[], Iterable[ObjectInfo]],
    concurrency: int,
    progress: Progress,
) -> list[Copy]:
    """The copies that receipts of this batch vouch for, and that are still what these say.

    Args:
        root: The dataset's root.
        batch: The batch's name, as `larder.pipeline.copies.CopyReceipts` has it.
        objects: Gives the objects of the batch as they were listed.
        concurrency: How many copies are asked for at once.
        progress: May stop this; told of nothing, as the earlier try told of these objects.

    Raises:
        DamageError: A receipt cannot be trusted.
        LarderError: The storage refuses, or ``progress`` stops it.
    """
    known: dict[_Pair, Copy] = {}
    for ref in copied.partial_receipts(root, batch):
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
            there = root.head(layout.mirror_prefix() + info.key)
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
    """The shards that receipts of this batch vouch for, with their rows, by split and name.

    One whose object is not what its receipt says is left out.

    Args:
        root: The dataset's root.
        segment: ID of the segment that is being built.
        batch: The batch's name, as `larder.pipeline.receipts.ShardReceipts` has it.

    Raises:
        DamageError: A receipt, or its rows, cannot be trusted.
        StoreError: The storage refuses.
    """
    found: dict[tuple[str, str], tuple[Shard, list[pa.RecordBatch]]] = {}
    for receipt in partial_receipts(root, segment, batch):
        first_row = 0
        for shard in receipt.shards:
            if _stands(root, segment, shard):
                batches = list(
                    read_ref(root, receipt.rows, SAMPLES, first_row=first_row, rows=shard.samples)
                )
                found[shard.split, shard.name] = shard, batches
            first_row += shard.samples
    return found


def _stands(root: Store, segment: str, shard: Shard) -> bool:
    def find(path: str) -> ObjectInfo | None:
        try:
            return root.head(layout.shards_prefix(segment) + path)
        except NotFoundError:
            return None

    return is_noted(shard, find)
