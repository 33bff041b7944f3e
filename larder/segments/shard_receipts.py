"""The receipts of shards: each describes a finished shard, in one file beside it.

A receipt is written after its shard, at ``work/shards/SPLIT/NAME-DIGEST.parquet``. Its rows are the
shard's samples, then the bad samples that were left out; its metadata describes the shard's files.
The digest covers the lengths and etags of these files, so a listing tells whether the receipt
matches the stored objects.

An object whose length matches a receipt, but whose etag does not, was rewritten, copied or restored
since. It is read and compared with the receipt's sha256. On a file system, an etag consists of
time, size and inode, so a change that restores all three is not detected (nor by rsync). On S3
this cannot happen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, groupby, takewhile
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from larder.budgets import map_ahead
from larder.disk import disk_errors, scratch
from larder.errors import DamageError, FatalError
from larder.manifest.digest import canonical_json, sha256_hex
from larder.manifest.manifest_files import read_manifest, write_manifest
from larder.manifest.pages import check_footer
from larder.manifest.sealed import from_plain, seal, unseal
from larder.names import FileName, SplitName
from larder.progress import Progress
from larder.segments.segment_job import Job
from larder.shards.formats import shard_format
from larder.shards.images.check import FormNote
from larder.shards.model import ROWS, ShardPlan, ShardResult, WrittenFile
from larder.store import local_path, object_url
from larder.store.base import ObjectInfo, Store
from larder.store.own_files import has_sha256, listed, published_file_errors, read_digest
from larder.units import format_count
from larder.versions import layout
from larder.versions.documents import SegmentDocument

READERS = 8

_GROUP_ROWS = 8_192
"""Rows of a receipt that are compressed together, and held in memory while it is written."""

_METADATA = b"larder.shard"


@dataclass(frozen=True, slots=True)
class FinishedShard:
    """A finished shard, and its index files for other readers.

    It has no ``files`` if all of its samples were left out as bad.
    """

    split: SplitName
    name: FileName
    files: tuple[WrittenFile, ...]
    samples: int
    forms: tuple[FormNote, ...] = ()
    indexes: tuple[WrittenFile, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def shard_of(result: ShardResult, indexes: tuple[WrittenFile, ...]) -> FinishedShard:
    """Describe a shard that did not fail, with its index files for other readers."""
    samples = result.samples.num_rows
    return FinishedShard(result.split, result.name, result.files, samples, result.forms, indexes)


def put_receipt(
    root: Store, segment: str, shard: FinishedShard, rows: Iterable[pa.RecordBatch], folder: Path
) -> None:
    """Write the receipt of a shard, with a temporary file in ``folder``."""
    digest = _digest((file.name, file.bytes, file.etag) for file in shard.files)
    key = layout.receipt_key(segment, shard.split, shard.name, digest)
    schema = ROWS.with_metadata({_METADATA: seal({"shard": shard})})
    path = folder / f"{shard.split}-{digest}.parquet"
    write_manifest(path, schema, rows, row_group_rows=_GROUP_ROWS)
    with published_file_errors():
        root.upload(key, path)
    path.unlink()


def _digest(files: Iterable[tuple[str, int, str]]) -> str:
    return sha256_hex(canonical_json([list(file) for file in files]))[:16]


class Receipt(NamedTuple):
    """A receipt as a local file; ``url`` is its place in the storage."""

    url: str
    path: Path
    shard: FinishedShard

    def rows(self, first_row: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the samples of the shard, then the bad samples; ``damage.manifest``."""
        try:
            yield from read_manifest(self.path, ROWS, first_row=first_row)
        except DamageError as error:
            raise damaged_receipt(self.url, error.message) from error

    def samples(self) -> Iterator[pa.RecordBatch]:
        """Yield the samples of the shard; ``damage.manifest``."""
        for batch in self.rows():
            samples = batch.filter(batch.column("bad").is_null())
            if any(samples.column(name).null_count for name in ("offset", "length")):
                raise damaged_receipt(self.url, "a sample lacks its place")
            yield samples


def damaged_receipt(url: str, message: str) -> DamageError:
    hint = "delete it and run again: its shard is made again"
    return DamageError("damage.manifest", message, where=url, hint=hint)


def read_receipt(root: Store, key: str, folder: Path) -> Receipt:
    """Read a receipt, in place or copied into ``folder``; ``damage.manifest``: it is damaged."""
    if root.features.local_path:
        path = local_path(root, key)
    else:
        path = folder / sha256_hex(key.encode())
        with published_file_errors(), disk_errors(path), path.open("wb") as file:
            read_digest(root, key, file.write)
    url = object_url(root.url, key)
    return Receipt(url, path, _shard(path, url))


def _shard(path: Path, url: str) -> FinishedShard:
    try:
        with path.open("rb") as file:
            check_footer(file)
        plain = unseal(pq.read_schema(path).metadata[_METADATA], url)
        return from_plain(FinishedShard, plain["shard"])
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, DamageError) as error:
        raise damaged_receipt(url, f"the receipt cannot be read: {error}") from error


class ShardObjects(NamedTuple):
    """The existing files of a planned shard, and the keys of its receipts, as listed.

    ``receipt`` is the key of the receipt that matches the files.
    """

    plan: ShardPlan
    objects: tuple[ObjectInfo, ...]
    receipts: tuple[str, ...]
    receipt: str | None

    @property
    def bytes(self) -> int:
        """Total size of its files; 0 for a shard whose samples were all left out."""
        return sum(info.size_bytes for info in self.objects)


def list_shards(root: Store, job: Job, plans: Iterable[ShardPlan]) -> list[ShardObjects]:
    """List the objects and the receipts of some shards of a segment, in their order.

    In each split, everything between the first and the last of these shards is listed.
    """
    format_ = shard_format(*job.shape.use)
    shards: list[ShardObjects] = []
    for split, members in groupby(plans, key=lambda plan: plan.split):
        files = {plan: format_.file_names(plan.name) for plan in members}
        names = sorted(chain.from_iterable(files.values()))
        objects = {
            info.key: info
            for info in _between(root, layout.shard_key(job.segment, split, ""), names)
        }
        receipts: dict[str, list[str]] = defaultdict(list)
        for info in _between(root, layout.receipts_prefix(job.segment, split), names):
            receipts[layout.undigested_name(info.key)].append(info.key)
        for plan, file_names in files.items():
            keys = {name: layout.shard_key(job.segment, split, name) for name in file_names}
            infos = {name: objects[key] for name, key in keys.items() if key in objects}
            digest = _digest((name, info.size_bytes, info.etag) for name, info in infos.items())
            right = layout.receipt_key(job.segment, split, plan.name, digest)
            known = tuple(receipts[plan.name])
            receipt = right if right in known else None
            shards.append(ShardObjects(plan, tuple(infos.values()), known, receipt))
    return shards


def _between(root: Store, prefix: str, names: Sequence[str]) -> Iterator[ObjectInfo]:
    """Yield the objects from the first of some sorted names to all that begin with the last."""
    pages = listed(root, prefix, start_after=f"{prefix}{names[0][:-1]}")
    last = f"{prefix}{names[-1]}"
    return takewhile(lambda info: info.key <= last or info.key.startswith(last), pages)


def finished_shards(
    root: Store, job: Job, plans: Iterable[ShardPlan], progress: Progress
) -> list[ShardObjects]:
    """Return the finished shards, among some shards of a segment.

    If no receipt of a shard matches its objects, the objects are read and compared.
    """
    shards = list_shards(root, job, plans)
    finished = [shard for shard in shards if shard.receipt]
    doubtful = [shard for shard in shards if shard.receipts and shard.objects and not shard.receipt]
    if not doubtful:
        return finished
    progress.start("compare", objects=len(doubtful), bytes=sum(shard.bytes for shard in doubtful))
    with scratch() as folder, ThreadPoolExecutor(READERS, thread_name_prefix="check") as pool:

        def compared(shard: ShardObjects) -> bool:
            right = any(_is_of(root, job.segment, shard, key, folder) for key in shard.receipts)
            progress.advance("compare", objects=1, bytes=shard.bytes)
            return right

        verdicts = list(map_ahead(pool, compared, doubtful, window=2 * READERS))
    progress.finish("compare")
    return finished + [shard for shard, right in zip(doubtful, verdicts, strict=True) if right]


def _is_of(root: Store, segment: str, shard: ShardObjects, key: str, folder: Path) -> bool:
    """Return whether a receipt matches the contents of a shard; if so, renew it."""
    receipt = read_receipt(root, key, folder)
    files = receipt.shard.files
    if [file.bytes for file in files] != [info.size_bytes for info in shard.objects]:
        return False
    pairs = list(zip(files, shard.objects, strict=True))
    if not all(has_sha256(root, info, file.sha256) for file, info in pairs):
        return False
    renewed = tuple(replace(file, etag=info.etag) for file, info in pairs)
    put_receipt(root, segment, replace(receipt.shard, files=renewed), receipt.rows(), folder)
    return True


def published_plans(root: Store, document: SegmentDocument) -> list[ShardPlan]:
    """Return the splits and names of a published segment's shards, in the order of their plan."""
    prefix = layout.receipts_prefix(document.id)
    keys = (info.key for info in listed(root, prefix))
    names = {(key.removeprefix(prefix).split("/")[0], layout.undigested_name(key)) for key in keys}
    if (missing := sum(facts.shards for facts in document.splits.values()) - len(names)) > 0:
        message = f"{format_count(missing, 'shard')} without a receipt"
        raise FatalError("run.failed", message, where=object_url(root.url, prefix))
    splits = sorted(document.splits.items(), key=lambda item: (item[1].first_row, item[1].samples))
    places = {split: place for place, (split, _) in enumerate(splits)}
    in_order = sorted(names, key=lambda name: (places.get(name[0], -1), len(name[1]), name[1]))
    return [ShardPlan(split, 0, name, 0, 0, 0) for split, name in in_order]


def planned_receipts(
    root: Store, job: Job, plans: Iterable[ShardPlan]
) -> Iterator[tuple[ShardPlan, Receipt]]:
    """Yield the shards of a segment in the order of its plan, each with its receipt, read ahead.

    ``run.failed``: a shard has none.
    """
    shards = list_shards(root, job, plans)
    if missing := [shard.plan.name for shard in shards if not shard.receipts]:
        number = format_count(len(missing), "shard")
        message = f"{number} without a receipt, such as {missing[0]}"
        raise FatalError("run.failed", message, where=root.url, hint="run again")
    with scratch() as folder, ThreadPoolExecutor(READERS, thread_name_prefix="receipt") as pool:

        def read(shard: ShardObjects) -> tuple[ShardPlan, Receipt]:
            return shard.plan, read_receipt(root, shard.receipt or shard.receipts[-1], folder)

        for plan, receipt in map_ahead(pool, read, shards, window=2 * READERS):
            yield plan, receipt
            if receipt.path.is_relative_to(folder):
                receipt.path.unlink()
