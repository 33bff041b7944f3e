"""Makes damaged shards again, from the parts that are wherever they still are.

The samples of a shard, their order and the checksums of their parts are in its index; the format
writes the same bytes from them. So a shard with one flipped bit is made from its own other samples
and the object of the one that is damaged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from larder.cache.fields import field_name
from larder.errors import (
    DamageError,
    LarderError,
    ObjectError,
    RetryableError,
    StoreError,
)
from larder.limits import read_ahead_bytes
from larder.manifest.schemas import SAMPLES
from larder.manifest.spool import Spool
from larder.pipeline.job import ManifestRef
from larder.pipeline.manifests import read_ref
from larder.pipeline.repairing_files import (
    Recorded,
    Repair,
    Replacement,
    copy_right,
    refused,
)
from larder.pipeline.repairing_places import Objects, Places
from larder.pipeline.salvage import Salvage, Wanted
from larder.pipeline.verifying_job import ShardToVerify, VerifyBatch, VerifyJob, open_verified
from larder.progress import Progress
from larder.samples.columns import column_structs, column_values
from larder.shards.build import build_shard
from larder.shards.formats import shard_format
from larder.shards.formats.base import ShardFormat
from larder.shards.indexes import index_files
from larder.shards.model import Part, Sample, ShardPlan, ShardResult
from larder.shards.readahead import open_reads, suited_concurrency
from larder.store import object_url
from larder.store.base import Store, Writer
from larder.units import format_count
from larder.versions import layout
from larder.versions.documents import Shape

__all__ = ["STAGE", "ShardRepairs", "repair_shards"]

STAGE = "repair"

_HINT = (
    "put the object back into the source as it was, or restore the file; or prepare the dataset"
    " again: the next version follows the source and leaves such a sample behind"
)


@dataclass(frozen=True, slots=True)
class ShardRepairs:
    """Damaged shards of one segment.

    Attributes:
        batch: The shards.
        shape: The shape of the segment's shards; None if segment.json is damaged.
        damaged: The paths of their damaged files.
        twins: By path, files that have its right content.
        trial: Whether nothing is written.
    """

    batch: VerifyBatch
    shape: Shape | None
    damaged: frozenset[str]
    twins: Mapping[str, tuple[str, ...]]
    trial: bool

    @property
    def name(self) -> str:
        """The first shard, for people."""
        return self.batch.name


class _PartRow(NamedTuple):
    """The fields of a part in `larder.manifest.schemas.SAMPLES`."""

    ext: str
    source: str | None
    etag: str | None
    offset: int | None
    length: int
    crc32c: int


def repair_shards(
    job: VerifyJob, batch: ShardRepairs, *, progress: Progress, concurrent_batches: int = 1
) -> tuple[Repair, ...]:
    """Make damaged shards again, and replace their files if the bytes are those of before.

    Args:
        job: The verification.
        batch: What to repair.
        progress: Reports progress of stage ``repair``.
        concurrent_batches: Number of concurrent batches, which share the limits.

    Returns:
        What became of each damaged file.

    Raises:
        StoreError: The storage refuses access.
        RetryableError: A store kept failing.
    """
    root = open_verified(job)
    places = Places(job, root, batch.batch)
    found: list[Repair] = []
    for shard in batch.batch.shards:
        found += _repair(job, root, batch, shard, places, concurrent_batches)
        progress.advance(STAGE, objects=1, bytes=shard.bytes)
    return tuple(found)


def _repair(
    job: VerifyJob,
    root: Store,
    batch: ShardRepairs,
    shard: ShardToVerify,
    places: Places,
    concurrent_batches: int,
) -> Iterator[Repair]:
    segment = batch.batch.segment
    left: dict[str, Recorded] = {}
    for file in shard.files:
        path = layout.shard_key(segment, shard.split, file.name)
        recorded = Recorded(path, file.bytes, file.sha256)
        if path not in batch.damaged:
            continue
        twin = copy_right(root, recorded, batch.twins.get(path, ()), trial=batch.trial)
        if twin:
            yield Repair(path, True, f"copied from {twin}")
        else:
            left[file.name] = recorded
    yield from _indexes(root, batch, shard)
    if left:
        done, message = _remade(job, root, batch, shard, left, places, concurrent_batches)
        yield from (Repair(recorded.path, done, message) for recorded in left.values())


def _indexes(root: Store, batch: ShardRepairs, shard: ShardToVerify) -> Iterator[Repair]:
    """The damaged index files of a shard, from its rows."""
    segment, split = batch.batch.segment, shard.split
    due = {
        path: Recorded(path, file.bytes, file.sha256)
        for file in shard.indexes
        if (path := layout.reader_index_key(segment, file.kind, split, file.name)) in batch.damaged
    }
    if not due:
        return
    if batch.batch.samples is None or batch.shape is None:
        message = "its index or segment.json is damaged, and has to be repaired first"
        yield from (Repair(path, False, message) for path in due)
        return
    rows = Spool.of(_rows(root, batch.batch.samples, shard).to_batches(), SAMPLES)
    kinds = shard_format(*batch.shape.use).indexes
    made = {
        layout.reader_index_key(segment, file.kind, split, file.name): data
        for file, data in index_files(kinds, shard.name, rows)
    }
    for path, recorded in due.items():
        try:
            with Replacement(None if batch.trial else root, recorded, root.url) as writer:
                writer.write(made.get(path, b""))
                writer.commit()
        except DamageError as error:
            yield Repair(path, False, f"{error.message}; repair it with the Larder that wrote it")
        except ObjectError as error:
            yield refused(path, error)
        else:
            yield Repair(path, True, "made again from the manifest of samples")


def _rows(root: Store, samples: ManifestRef, shard: ShardToVerify) -> pa.Table:
    rows = read_ref(root, samples, SAMPLES, first_row=shard.first_row, rows=shard.rows)
    return pa.Table.from_batches(rows, SAMPLES)


def _remade(
    job: VerifyJob,
    root: Store,
    batch: ShardRepairs,
    shard: ShardToVerify,
    left: Mapping[str, Recorded],
    places: Places,
    concurrent_batches: int,
) -> tuple[bool, str]:
    shape = batch.shape
    if batch.batch.samples is None or shape is None:
        return False, "its index or segment.json is damaged, and has to be repaired first"
    format_ = shard_format(*shape.use)
    if format_.version != shape.format_version:
        return False, (
            f"it was written by version {shape.format_version} of the format {shape.format}, and"
            f" this Larder writes version {format_.version}; repair it with the one that wrote it"
        )
    try:
        rows = _rows(root, batch.batch.samples, shard)
        samples, found = _samples(rows, shard.first_id)
    except DamageError as error:
        return False, f"its index cannot be read: {error.message}"
    url = object_url(root.url, layout.shard_key(batch.batch.segment, shard.split, shard.name))
    with ExitStack() as stack:
        looked = places.of(shard, found, shape.images, stack)
        salvage = Salvage(url, found.wanted, looked)
        plan = places.plan(shard)
        result = _built(
            job, root, batch, shard, plan, left, samples, salvage, format_, concurrent_batches
        )
    if isinstance(result, LarderError):
        return False, refused("", result).message
    if result.failures:
        first, others = result.failures[0], result.failed - 1
        more = f" (and {format_count(others, 'more object')})" if others else ""
        return False, f"{first.line}{more}; {_HINT}"
    return True, _used(salvage.used)


def _built(
    job: VerifyJob,
    root: Store,
    batch: ShardRepairs,
    shard: ShardToVerify,
    plan: ShardPlan,
    left: Mapping[str, Recorded],
    samples: Sequence[Sample],
    salvage: Salvage,
    format_: ShardFormat,
    concurrent_batches: int,
) -> ShardResult | LarderError:
    recorded = {
        file.name: Recorded(
            layout.shard_key(batch.batch.segment, shard.split, file.name), file.bytes, file.sha256
        )
        for file in shard.files
    }

    def open_writer(name: str) -> Writer:
        writes = name in left and not batch.trial
        return Replacement(root if writes else None, recorded[name], root.url)

    limits = job.cluster.copy_
    allowed = max(1, limits.concurrency // concurrent_batches)
    memory = read_ahead_bytes(limits.memory // concurrent_batches, local=root.features.local_path)
    with open_reads(suited_concurrency(root, "none", allowed), memory) as reads:
        try:
            return build_shard(
                plan,
                samples,
                salvage,
                open_writer,
                reads,
                format_,
                validate="none",
            )
        except (StoreError, RetryableError):
            raise
        except LarderError as error:
            return error


def _samples(rows: pa.Table, first_id: int) -> tuple[list[Sample], Objects]:
    """The samples of a shard, and their objects."""
    samples: list[Sample] = []
    found = Objects()
    for batch in rows.to_batches():
        columns = (column_values(batch.column(name)) for name in ("split", "key", "label"))
        parts = column_structs(batch.column("parts"), _PartRow._fields, _PartRow)
        for split, key, label, own in zip(*columns, parts, strict=True):
            objects = []
            for ext, source, etag, offset, length, crc32c in own:
                if source is None:
                    continue  # the label
                objects.append(Part(ext, source, length, ""))
                found.exts[source] = ext
                found.wanted[source] = Wanted(etag or "", length, crc32c)
                found.fields[source] = first_id + len(samples), field_name(ext, "encoded")
                if offset is not None:
                    found.offsets[source] = offset
            samples.append(Sample(split, key, label, tuple(objects)))
    return samples, found


def _used(used: Counter[str]) -> str:
    parts = [f"{format_count(count, 'object')} from {name}" for name, count in used.most_common()]
    return f"made again: {', '.join(parts)}" if parts else "made again"
