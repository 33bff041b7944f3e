"""Finds the shards of a segment that are already finished: those whose objects match a receipt.

An object whose length and etag match the receipt is accepted. If its etag differs, it was written
to, copied or restored since: it is read and compared with the receipt's sha256. On a file system,
an etag consists of time, size and inode, so a change that restores all three is not detected here
(as rsync would not detect it); on S3 this cannot happen.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from larder.errors import ObjectError
from larder.limits import map_ahead
from larder.pipeline.job import listed
from larder.pipeline.receipts import Receipt, Shard, put_receipt, read_receipts
from larder.progress import Progress
from larder.store.base import ObjectInfo, Store
from larder.versions import layout

READERS = 8

_Name = tuple[str, str]
"""Split and name of a shard."""

_Doubtful = tuple[Receipt, Shard, Sequence[ObjectInfo]]
"""A shard of a receipt, and the objects with the names of its files."""


def standing_shards(
    root: Store, segment: str, wanted: Collection[_Name], progress: Progress
) -> dict[_Name, int]:
    """Bytes of the finished shards; 0 for a shard whose samples were all left out.

    If shards were read and found to be correct, their receipt gets their new etags, so that they
    are not read again. Once all shards in ``wanted`` are found, no further receipts are read.
    """
    prefix = layout.shards_prefix(segment)
    infos = {info.key.removeprefix(prefix): info for info in listed(root, prefix)}
    standing: dict[_Name, int] = {}
    doubtful: dict[_Name, _Doubtful] = {}
    left = set(wanted)
    for receipt in read_receipts(root, segment):
        for shard in receipt.shards:
            name = (shard.split, shard.name)
            if is_noted(shard, infos.get):
                standing[name] = shard.bytes
                left.discard(name)
            elif found := _of_the_same_size(shard, infos):
                doubtful[name] = (receipt, shard, found)
        if not left:
            break
    unsure = [entry for name, entry in doubtful.items() if name not in standing]
    for _, shard, _ in _verified(root, unsure, progress):
        standing[shard.split, shard.name] = shard.bytes
    return standing


def is_noted(shard: Shard, find: Callable[[str], ObjectInfo | None]) -> bool:
    """Whether the objects of a shard match its receipt; true if it has no files.

    ``find`` looks up the object ``SPLIT/NAME`` below the prefix of the segment's shards.
    """
    if not shard.files:
        return find(f"{shard.split}/{shard.name}") is None
    infos = (find(f"{shard.split}/{file.name}") for file in shard.files)
    return all(
        info is not None and (info.size_bytes, info.etag) == (file.bytes, file.etag)
        for file, info in zip(shard.files, infos, strict=True)
    )


def _of_the_same_size(shard: Shard, infos: Mapping[str, ObjectInfo]) -> list[ObjectInfo]:
    """The objects of a shard's files, if all have the right length; otherwise empty."""
    found = (infos.get(f"{shard.split}/{file.name}") for file in shard.files)
    right = [
        info
        for file, info in zip(shard.files, found, strict=True)
        if info and info.size_bytes == file.bytes
    ]
    return right if len(right) == len(shard.files) else []


def _verified(root: Store, unsure: Sequence[_Doubtful], progress: Progress) -> list[_Doubtful]:
    if not unsure:
        return []

    def verified(entry: _Doubtful) -> bool:
        _, shard, infos = entry
        pairs = zip(shard.files, infos, strict=True)
        right = all(has_sha256(root, info, file.sha256) for file, info in pairs)
        progress.advance("compare", objects=1, bytes=shard.bytes)
        return right

    size_bytes = sum(shard.bytes for _, shard, _ in unsure)
    progress.start("compare", objects=len(unsure), bytes=size_bytes)
    with ThreadPoolExecutor(READERS, thread_name_prefix="check") as pool:
        verdicts = list(map_ahead(pool, verified, unsure, window=2 * READERS))
    right = [entry for entry, verdict in zip(unsure, verdicts, strict=True) if verdict]
    _note(root, right)
    progress.finish("compare")
    return right


def has_sha256(store: Store, info: ObjectInfo, sha256: str) -> bool:
    """Whether the content of an object has a digest; false if it cannot be read, or changes."""
    hasher = hashlib.sha256()
    try:
        with store.open(info.key, if_match=info.etag) as reader:
            for buffer in reader:
                hasher.update(buffer)
    except ObjectError:
        return False
    return hasher.hexdigest() == sha256


def _note(root: Store, right: Sequence[_Doubtful]) -> None:
    receipts = {receipt.key: receipt for receipt, _, _ in right}
    now: dict[str, dict[Shard, Shard]] = defaultdict(dict)
    for receipt, shard, infos in right:
        pairs = zip(shard.files, infos, strict=True)
        files = tuple(replace(file, etag=info.etag) for file, info in pairs)
        now[receipt.key][shard] = replace(shard, files=files)
    for key, receipt in receipts.items():
        shards = (now[key].get(shard, shard) for shard in receipt.shards)
        put_receipt(root, replace(receipt, shards=tuple(shards)))
