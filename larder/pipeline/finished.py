"""The finished shards of a segment: those whose objects match a receipt.

An object whose length and etag match the receipt is accepted. If its etag differs, it was written
to, copied or restored since: it is read and compared with the receipt's sha256. On a file system,
an etag consists of time, size and inode, so a change that restores all three is not detected here
(as rsync would not detect it); on S3 this cannot happen.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from larder.errors import FatalError, NotFoundError, ObjectError
from larder.jobs.manifests import fetched
from larder.limits import map_ahead
from larder.manifest.digest import canonical_json
from larder.manifest.files import read_manifest
from larder.manifest.reference import ManifestRef
from larder.manifest.schemas import SAMPLES
from larder.manifest.sealed import to_plain
from larder.manifest.spool import Spool
from larder.pipeline.job import SegmentJob
from larder.pipeline.pack import planned_shards
from larder.pipeline.receipts import (
    Receipt,
    Shard,
    partial_receipts,
    plain_shard,
    put_receipt,
    read_receipts,
)
from larder.progress import Progress
from larder.store.base import ObjectInfo, Store
from larder.store.own_files import listed
from larder.units import format_count
from larder.versions import layout

READERS = 8

_Name = tuple[str, str]
"""Split and name of a shard."""

_Doubtful = tuple[Receipt, Shard, Sequence[ObjectInfo]]
"""A shard of a receipt, and the objects with the names of its files."""


def finished_sizes(
    root: Store, segment: str, wanted: Collection[_Name], progress: Progress
) -> dict[_Name, int]:
    """Bytes of the finished shards; 0 for a shard whose samples were all left out.

    If shards were read and found to be correct, their receipt gets their new etags, so that they
    are not read again. Once all shards in ``wanted`` are found, no further receipts are read.
    """
    prefix = layout.shards_prefix(segment)
    infos = {info.key.removeprefix(prefix): info for info in listed(root, prefix)}
    finished: dict[_Name, int] = {}
    doubtful: dict[_Name, _Doubtful] = {}
    left = set(wanted)
    for receipt in read_receipts(root, segment):
        for shard in receipt.shards:
            name = (shard.split, shard.name)
            if matches_receipt(shard, infos.get):
                finished[name] = shard.bytes
                left.discard(name)
            elif objects := _of_the_same_size(shard, infos):
                doubtful[name] = (receipt, shard, objects)
        if not left:
            break
    unsure = [entry for name, entry in doubtful.items() if name not in finished]
    for _, shard, _ in _verified(root, unsure, progress):
        finished[shard.split, shard.name] = shard.bytes
    return finished


def matches_receipt(shard: Shard, find: Callable[[str], ObjectInfo | None]) -> bool:
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
    objects = (infos.get(f"{shard.split}/{file.name}") for file in shard.files)
    right = [
        info
        for file, info in zip(shard.files, objects, strict=True)
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
    _put_etags(root, right)
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


def _put_etags(root: Store, right: Sequence[_Doubtful]) -> None:
    receipts = {receipt.key: receipt for receipt, _, _ in right}
    updated: dict[str, dict[Shard, Shard]] = defaultdict(dict)
    for receipt, shard, infos in right:
        pairs = zip(shard.files, infos, strict=True)
        files = tuple(replace(file, etag=info.etag) for file, info in pairs)
        updated[receipt.key][shard] = replace(shard, files=files)
    for key, receipt in receipts.items():
        shards = (updated[key].get(shard, shard) for shard in receipt.shards)
        put_receipt(root, replace(receipt, shards=tuple(shards)))


_ROWS = pa.schema(
    [
        pa.field("shard", pa.string(), nullable=False),
        pa.field("receipt", pa.string(), nullable=False),
        pa.field("first_row", pa.int64(), nullable=False),
    ]
)
"""A finished shard: JSON of what its receipt says of it and of the manifest with its rows."""

_Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FinishedShard:
    """A finished shard: ``index`` is its number in the plan, within its split.

    Its rows of `larder.manifest.schemas.SAMPLES` begin at ``first_row`` of the manifest ``rows``.
    """

    index: int
    shard: Shard
    rows: ManifestRef
    first_row: int


class Finished:
    """All shards in the order of the plan, including those whose samples were all left out.

    They are read again whenever they are iterated over. ``spool`` has rows of `_ROWS`, of which
    ``places`` has the one of each shard.
    """

    def __init__(self, spool: Spool, indexes: Sequence[int], places: _Places) -> None:
        self._spool = spool
        self._indexes = indexes
        self._places = places

    def __iter__(self) -> Iterator[FinishedShard]:
        indexes = iter(self._indexes)
        ends = np.flatnonzero(np.diff(self._places) != 1) + 1
        for run in np.split(self._places, ends) if len(self._places) else ():
            for batch in self._spool.read(int(run[0]), len(run)):
                for shard, receipt, first_row in zip(
                    *(column.to_pylist() for column in batch.columns), strict=True
                ):
                    yield FinishedShard(
                        next(indexes),
                        plain_shard(json.loads(shard)),
                        ManifestRef(**json.loads(receipt)),
                        first_row,
                    )


def finished_shards(root: Store, job: SegmentJob) -> Finished:
    """The shards of the segment that a job builds; ``run.failed``: a shard has no receipt."""
    with fetched(root, job.shard_plan) as path:
        plans = planned_shards(path)
        numbers = {(plan.split, plan.name): plan.index for plan in plans}
    places = {name: place for place, name in enumerate(numbers)}
    unsure = set(numbers)
    rows = np.full(len(numbers), -1, np.int64)
    spool = Spool(_ROWS)
    prefix = layout.shards_prefix(job.segment)
    infos = {info.key.removeprefix(prefix): info for info in listed(root, prefix)}
    for receipt in read_receipts(root, job.segment):
        if not unsure:
            break  # the others are for the same shards
        first_row = spool.num_rows
        spool.append(_batch(receipt))
        for row, shard in enumerate(receipt.shards, first_row):
            name = (shard.split, shard.name)
            if name in unsure:  # of several receipts, the one that matches the object
                rows[places[name]] = row
                if matches_receipt(shard, infos.get):
                    unsure.remove(name)
    if missing := [name for name, row in zip(numbers, rows.tolist(), strict=True) if row < 0]:
        message = (
            f"{format_count(len(missing), 'shard')} without a receipt, such as {missing[0][1]}"
        )
        raise FatalError("run.failed", message, where=root.url, hint="run again")
    return Finished(spool, list(numbers.values()), rows)


def _batch(receipt: Receipt) -> pa.RecordBatch:
    counts = [shard.samples for shard in receipt.shards]
    first_rows = np.cumsum([0, *counts])[: len(counts)]
    rows = canonical_json(to_plain(receipt.rows)).decode()
    columns = [
        pa.array([canonical_json(to_plain(shard)).decode() for shard in receipt.shards]),
        pa.array([rows] * len(counts), pa.string()),
        pa.array(first_rows, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ROWS)


def shards_before(
    root: Store, segment: str, batch: str
) -> Iterator[tuple[Shard, Iterator[pa.RecordBatch]]]:
    """The shards in receipts of this batch, with their rows.

    Shards whose objects do not match their receipt are left out.
    """
    names: set[tuple[str, str]] = set()
    for receipt in partial_receipts(root, segment, batch):
        first_row = 0
        with fetched(root, receipt.rows) as path:
            for shard in receipt.shards:
                name, place = (shard.split, shard.name), (first_row, shard.samples)
                first_row += shard.samples
                if name not in names and _stands(root, segment, shard):
                    names.add(name)
                    yield shard, read_manifest(path, SAMPLES, first_row=place[0], rows=place[1])


def _stands(root: Store, segment: str, shard: Shard) -> bool:
    def find(path: str) -> ObjectInfo | None:
        try:
            return root.head(layout.shards_prefix(segment) + path)
        except NotFoundError:
            return None

    return matches_receipt(shard, find)
