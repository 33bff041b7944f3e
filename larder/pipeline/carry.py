"""What an earlier try at a batch finished: a task that is repeated does not do it again.

A run that is carried on plans other batches; this is for the same batch of the same job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from larder.errors import NotFoundError, ObjectError
from larder.limits import map_ahead
from larder.pipeline import copied
from larder.pipeline.manifests import read_ref
from larder.pipeline.receipts import Shard, partial_receipts
from larder.pipeline.standing import is_noted
from larder.progress import Progress
from larder.shards.model import NO_ROWS, ROWS
from larder.store.base import ObjectInfo, Store
from larder.transfer.copy import Copied
from larder.transfer.receipts import COPIED
from larder.versions import layout

__all__ = ["copied_before", "shards_before"]

_COLUMNS = ("key", "source_etag", "etag", "checksum", "check")
_Pair = tuple[str, str, str]
"""Key of an object, its etag at the source, and that of its copy."""


def copied_before(
    root: Store,
    segment: str,
    batch: str,
    objects: Callable[[], Iterable[ObjectInfo]],
    concurrency: int,
    progress: Progress,
) -> list[Copied]:
    """The copies that receipts of this batch vouch for, and that are still what these say.

    Args:
        root: The dataset's root.
        segment: ID of the segment that is being built.
        batch: The batch's name, as `larder.pipeline.copies.CopyReceipts` has it.
        objects: Gives the objects of the batch as they were listed.
        concurrency: How many copies are asked for at once.
        progress: May stop this; told of nothing, as the earlier try told of these objects.

    Raises:
        DamageError: A receipt cannot be trusted.
        LarderError: The storage refuses, or ``progress`` stops it.
    """
    known: dict[_Pair, tuple[str | None, str]] = {}
    for ref in copied.partial_receipts(root, segment, batch):
        for rows in read_ref(root, ref, COPIED, columns=_COLUMNS):
            columns = (column.to_pylist() for column in rows.columns)
            for *pair, checksum, check in zip(*columns, strict=True):
                known[tuple(pair)] = checksum, check
    keys = {key for key, _, _ in known}
    if not keys:
        return []

    def find(info: ObjectInfo) -> Copied | None:
        try:
            there = root.head(layout.mirror_prefix() + info.key)
        except ObjectError:
            return None
        row = known.get((info.key, info.etag, there.etag))
        return Copied(info, there, *row) if row and there.size_bytes == info.size_bytes else None

    found: list[Copied] = []
    with ThreadPoolExecutor(concurrency, thread_name_prefix="check") as pool:
        asked = (info for info in objects() if info.key in keys)
        for row in map_ahead(pool, find, asked, window=4 * concurrency):
            progress.advance("mirror")
            found += [row] if row else []
    return found


def shards_before(
    root: Store, segment: str, batch: str
) -> dict[tuple[str, str], tuple[Shard, pa.RecordBatch]]:
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
    found: dict[tuple[str, str], tuple[Shard, pa.RecordBatch]] = {}
    for receipt in partial_receipts(root, segment, batch):
        first_row = 0
        for shard in receipt.shards:
            if _stands(root, segment, shard):
                batches = list(
                    read_ref(root, receipt.rows, ROWS, first_row=first_row, rows=shard.samples)
                )
                rows = pa.Table.from_batches(batches, ROWS).combine_chunks().to_batches()
                found[shard.split, shard.name] = shard, rows[0] if rows else NO_ROWS
            first_row += shard.samples
    return found


def _stands(root: Store, segment: str, shard: Shard) -> bool:
    def find(path: str) -> ObjectInfo | None:
        try:
            return root.head(layout.shards_prefix(segment) + path)
        except NotFoundError:
            return None

    return is_noted(shard, find)
