"""Which shards of a segment stand already: those of a receipt whose objects are what it says.

An object whose length and etag are those of the receipt is taken for it. One whose etag differs was
written to, copied or restored since: it is read and held against the receipt's sha256. On a file
system an etag is made of time, size and inode, so that what changes a file and puts all three back
is not seen here (as rsync would not see it); on S3 it cannot be.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from larder.errors import ObjectError
from larder.limits import map_ahead
from larder.pipeline.job import listed
from larder.pipeline.receipts import Receipt, Shard, put_receipt, read_receipts
from larder.progress import Progress
from larder.store.base import ObjectInfo, Store
from larder.versions import layout

__all__ = ["has_sha256", "is_noted", "standing_shards"]

READERS = 8

_Name = tuple[str, str]
"""Split and name of a shard."""


def standing_shards(
    root: Store, segment: str, wanted: Collection[_Name], progress: Progress
) -> dict[_Name, int]:
    """Bytes of the shards that need not be made again; 0 for one that no sample was left for.

    A receipt whose shards were read and found to be right gets their new etags, so that they are
    not read again.

    Args:
        root: The dataset's root.
        segment: ID of the segment.
        wanted: The shards of the plan. Once all of them stand, no further receipt is read.
        progress: Reports progress of stage ``compare``, if there is anything to read.

    Raises:
        DamageError: A receipt cannot be trusted.
        StoreError: The storage refuses.
    """
    prefix = layout.shards_prefix(segment)
    infos = {info.key.removeprefix(prefix): info for info in listed(root, prefix)}
    standing: dict[_Name, int] = {}
    doubtful: dict[_Name, tuple[Receipt, Shard, ObjectInfo]] = {}
    left = set(wanted)
    for receipt in read_receipts(root, segment):
        for shard in receipt.shards:
            name = (shard.split, shard.name)
            info = infos.get("/".join(name))
            if is_noted(shard, info):
                standing[name] = shard.bytes
                left.discard(name)
            elif info and shard.bytes == info.size_bytes:
                doubtful[name] = (receipt, shard, info)
        if not left:
            break
    unsure = [entry for name, entry in doubtful.items() if name not in standing]
    for _, shard, _ in _verified(root, unsure, progress):
        standing[shard.split, shard.name] = shard.bytes
    return standing


def is_noted(shard: Shard, info: ObjectInfo | None) -> bool:
    """Whether a receipt's shard is the object that stands there, or rightly has none."""
    if info is None or not shard.bytes:
        return info is None and not shard.bytes
    return (shard.bytes, shard.etag) == (info.size_bytes, info.etag)


def _verified(
    root: Store, unsure: Sequence[tuple[Receipt, Shard, ObjectInfo]], progress: Progress
) -> list[tuple[Receipt, Shard, ObjectInfo]]:
    if not unsure:
        return []

    def verified(entry: tuple[Receipt, Shard, ObjectInfo]) -> bool:
        _, shard, info = entry
        right = has_sha256(root, info, shard.sha256)
        progress.advance("compare", objects=1, bytes=info.size_bytes)
        return right

    size_bytes = sum(info.size_bytes for _, _, info in unsure)
    progress.start("compare", objects=len(unsure), bytes=size_bytes)
    with ThreadPoolExecutor(READERS, thread_name_prefix="check") as pool:
        verdicts = list(map_ahead(pool, verified, unsure, window=2 * READERS))
    right = [entry for entry, verdict in zip(unsure, verdicts, strict=True) if verdict]
    _note(root, right)
    progress.finish("compare")
    return right


def has_sha256(store: Store, info: ObjectInfo, sha256: str) -> bool:
    """Whether the content of an object has that digest; no if it cannot be read, or changes."""
    hasher = hashlib.sha256()
    try:
        with store.open(info.key, if_match=info.etag) as reader:
            for buffer in reader:
                hasher.update(buffer)
    except ObjectError:
        return False
    return hasher.hexdigest() == sha256


def _note(root: Store, right: Sequence[tuple[Receipt, Shard, ObjectInfo]]) -> None:
    receipts = {receipt.key: receipt for receipt, _, _ in right}
    etags: dict[str, dict[Shard, str]] = defaultdict(dict)
    for receipt, shard, info in right:
        etags[receipt.key][shard] = info.etag
    for key, receipt in receipts.items():
        shards = (replace(one, etag=etags[key].get(one, one.etag)) for one in receipt.shards)
        put_receipt(root, replace(receipt, shards=tuple(shards)))
