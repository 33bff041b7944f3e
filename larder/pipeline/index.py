"""The index step: the manifests of samples, shards and objects, from the receipts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from larder.errors import Failure, FatalError, ObjectError
from larder.manifest.files import ManifestFile, ManifestWriter, read_manifest, write_manifest
from larder.manifest.schemas import OBJECTS, SAMPLES, SHARDS
from larder.manifest.sort import sort_batches
from larder.pipeline.job import Job, Ref, fetch_manifest, opened_root, put_named, scratch
from larder.pipeline.plan import planned_shards
from larder.pipeline.shard import Receipt, Shard, read_receipts
from larder.progress import Progress
from larder.shards.index import sample_rows
from larder.shards.model import ROWS, ShardResult
from larder.shards.packing import brace_pattern
from larder.store import object_url
from larder.store.base import Store
from larder.transfer.copy import format_crc32c
from larder.transfer.receipts import COPIED
from larder.units import format_count
from larder.versions import layout
from larder.versions.documents import SplitFacts

__all__ = ["Index", "index_shards"]

SUMS = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("crc32c", pa.uint32(), nullable=False),
    ]
)
"""One row per object that was read into a shard."""


@dataclass(frozen=True, slots=True)
class Index:
    """The finished shards of a segment.

    Attributes:
        splits: Counts and patterns by split; a split without samples has none of either.
        samples: Ref of schema SAMPLES.
        shards: Ref of schema SHARDS.
        objects: Ref of schema OBJECTS: the inventory with the checksums of what was read.
        omitted: Samples that were left out: the first by name.
        omitted_count: How many there were.
    """

    splits: Mapping[str, SplitFacts]
    samples: Ref
    shards: Ref
    objects: Ref
    omitted: tuple[Failure, ...]
    omitted_count: int


def index_shards(job: Job, mirror: Ref | None, *, progress: Progress) -> Index:
    """Write the manifests of a segment whose shards all stand.

    Args:
        job: The run.
        mirror: What `seal_mirror` returned: every object is held against its checksum.
        progress: Told of stage ``index``.

    Raises:
        ObjectError: ``object.mismatch``: the mirror gave other bytes than were copied to it.
        FatalError: ``run.failed``: a shard has no receipt.
    """
    progress.start("index")
    with opened_root(job) as root, scratch() as folder:
        standing = _standing(root, job)
        shards = [entry.shard for entry in standing]
        rows = write_manifest(folder / "samples.parquet", SAMPLES, _samples(root, job, standing))
        table = write_manifest(folder / "shards.parquet", SHARDS, _shards(job, shards))
        sums = sort_batches(_sums(root, standing), SUMS, ["key"], work_dir=folder)
        objects = _objects(root, job, mirror, sums, folder)
        index = Index(
            splits=_splits(job, shards),
            samples=put_named(root, layout.index_key(job.segment, "samples", rows.sha256), rows),
            shards=put_named(root, layout.index_key(job.segment, "shards", table.sha256), table),
            objects=put_named(
                root, layout.manifest_key(job.version, "objects", objects.sha256), objects
            ),
            omitted=tuple(chain.from_iterable(r.omitted for r in _receipts(standing))),
            omitted_count=sum(receipt.omitted_count for receipt in _receipts(standing)),
        )
    progress.finish("index")
    return index


@dataclass(frozen=True, slots=True)
class _Entry:
    """A shard that stands, and where its rows are among those of its receipt."""

    shard: Shard
    receipt: Receipt
    first_row: int


def _standing(root: Store, job: Job) -> list[_Entry]:
    """The written shards in the order of the plan."""
    entries: dict[tuple[str, str], _Entry] = {}
    for receipt in read_receipts(root, job.segment):
        first_row = 0
        for shard in receipt.shards:
            entries[shard.split, shard.name] = _Entry(shard, receipt, first_row)
            first_row += shard.samples
    plans = list(planned_shards(fetch_manifest(root, job.shard_plan)))
    missing = [plan.name for plan in plans if (plan.split, plan.name) not in entries]
    if missing:
        message = f"{format_count(len(missing), 'shard')} without a receipt, first {missing[0]}"
        raise FatalError("run.failed", message, where=root.url, hint="run again")
    ordered = [entries[plan.split, plan.name] for plan in plans]
    return [entry for entry in ordered if entry.shard.samples]


def _receipts(standing: Iterable[_Entry]) -> list[Receipt]:
    return list({entry.receipt.rows.key: entry.receipt for entry in standing}.values())


def _rows_of(root: Store, entry: _Entry) -> Iterator[pa.RecordBatch]:
    path = fetch_manifest(root, entry.receipt.rows)
    return read_manifest(path, ROWS, first_row=entry.first_row, rows=entry.shard.samples)


def _samples(root: Store, job: Job, standing: Iterable[_Entry]) -> Iterator[pa.RecordBatch]:
    next_id: Counter[str] = Counter()
    for entry in standing:
        shard = entry.shard
        for batch in _rows_of(root, entry):
            first = next_id[shard.split]
            next_id[shard.split] += batch.num_rows
            rows = ShardResult(shard.split, shard.name, shard.bytes, shard.sha256, batch)
            yield sample_rows(rows, job.segment, first)


def _shards(job: Job, shards: Sequence[Shard]) -> Iterator[pa.RecordBatch]:
    if shards:
        columns = [
            [job.segment] * len(shards),
            [shard.split for shard in shards],
            [shard.name for shard in shards],
            [shard.bytes for shard in shards],
            [shard.samples for shard in shards],
            [shard.sha256 for shard in shards],
        ]
        yield pa.record_batch(
            [pa.array(column, field.type) for column, field in zip(columns, SHARDS, strict=True)],
            schema=SHARDS,
        )


def _sums(root: Store, standing: Iterable[_Entry]) -> Iterator[pa.RecordBatch]:
    for entry in standing:
        for batch in _rows_of(root, entry):
            structs = batch.column("parts").flatten()
            columns = [pc.struct_field(structs, "source"), pc.struct_field(structs, "crc32c")]
            of_objects = pc.is_valid(columns[0])
            yield pa.record_batch([column.filter(of_objects) for column in columns], schema=SUMS)


def _objects(
    root: Store, job: Job, mirror: Ref | None, sums: Iterator[pa.RecordBatch], folder: Path
) -> ManifestFile:
    """The inventory with the checksum of every object that was read; the mirror's must agree."""
    inventory = read_manifest(fetch_manifest(root, job.inventory), OBJECTS)
    mirrored = _Ahead(_checksums(root, mirror))
    read = _Ahead(_pairs(sums))
    with ManifestWriter(folder / "objects.parquet", OBJECTS) as writer:
        for batch in inventory:
            keys = batch.column("key").to_pylist()
            found = [read.get(key) for key in keys]
            for key, crc in zip(keys, found, strict=True):
                copied = mirrored.get(key)
                if copied and crc and copied != crc:
                    raise _mismatch(root, key, crc, copied)
            checksums = pa.array(found, pa.string())
            position = OBJECTS.get_field_index("checksum")
            writer.append_batch(
                batch.set_column(position, OBJECTS.field(position), checksums).cast(OBJECTS)
            )
    return writer.file


def _mismatch(root: Store, key: str, crc: str, copied: str) -> ObjectError:
    return ObjectError(
        "object.mismatch",
        f"the mirror gave {crc}, {copied} was copied to it",
        where=object_url(root.url, layout.mirror_prefix() + key),
        hint="something else writes to the mirror; delete the object and run again",
    )


def _pairs(sums: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, str]]:
    for batch in sums:
        keys, crcs = (column.to_pylist() for column in batch.columns)
        yield from zip(keys, map(format_crc32c, crcs), strict=True)


def _checksums(root: Store, mirror: Ref | None) -> Iterator[tuple[str, str]]:
    """The checksums of what was copied, by key; those of copies known by their etag are not."""
    if mirror is None:
        return
    path = fetch_manifest(root, mirror)
    for batch in read_manifest(path, COPIED, columns=["key", "checksum"]):
        pairs = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        yield from ((key, checksum) for key, checksum in pairs if checksum is not None)


class _Ahead:
    """Looks keys up in pairs that are ordered by key, for keys that only grow."""

    def __init__(self, pairs: Iterator[tuple[str, str]]) -> None:
        self._pairs = pairs
        self._next = next(pairs, None)

    def get(self, key: str) -> str | None:
        wanted = key.encode()
        while self._next is not None and self._next[0].encode() < wanted:
            self._next = next(self._pairs, None)
        return self._next[1] if self._next is not None and self._next[0] == key else None


def _splits(job: Job, shards: Sequence[Shard]) -> dict[str, SplitFacts]:
    facts = {}
    for split in job.dataset.split_names:
        own = [shard for shard in shards if shard.split == split]
        facts[split] = SplitFacts(
            samples=sum(shard.samples for shard in own),
            shards=len(own),
            bytes=sum(shard.bytes for shard in own),
            patterns=_patterns(job, split, [shard.name for shard in own]),
        )
    return facts


def _patterns(job: Job, split: str, names: Sequence[str]) -> tuple[str, ...]:
    return (layout.shard_key(job.segment, split, brace_pattern(names)),) if names else ()
