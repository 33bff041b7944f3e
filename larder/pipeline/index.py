"""The index step: the manifests of samples and shards, from the receipts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat

import pyarrow as pa

from larder.errors import Failure, FatalError
from larder.manifest.files import write_manifest
from larder.manifest.schemas import SAMPLES, SHARDS
from larder.pipeline.job import Job, ManifestRef, listed, open_root, put_named, scratch
from larder.pipeline.manifests import fetched, read_ref
from larder.pipeline.pack import planned_shards
from larder.pipeline.receipts import Receipt, Shard, read_receipts
from larder.pipeline.results import SHOWN_FAILURES
from larder.pipeline.standing import is_noted
from larder.progress import Progress
from larder.shards.index import numbered
from larder.shards.packing import brace_pattern
from larder.store.base import Store
from larder.units import format_count
from larder.versions import layout
from larder.versions.documents import SplitFacts

__all__ = ["Index", "index_shards"]


@dataclass(frozen=True, slots=True)
class Index:
    """The finished shards of a segment.

    Attributes:
        splits: Counts and patterns by split; a split without samples has no patterns.
        samples: ManifestRef of schema SAMPLES.
        shards: ManifestRef of schema SHARDS.
        omitted: Samples that were left out: the first ones by name.
        omitted_count: Number of samples left out.
    """

    splits: Mapping[str, SplitFacts]
    samples: ManifestRef
    shards: ManifestRef
    omitted: tuple[Failure, ...]
    omitted_count: int


def index_shards(job: Job, *, progress: Progress) -> Index:
    """Write the manifests of a segment whose shards are all finished.

    Args:
        job: The run.
        progress: Reports progress of stage ``index``.

    Raises:
        FatalError: ``run.failed``: a shard has no receipt.
    """
    progress.start("index")
    root = open_root(job)
    with scratch() as folder:
        planned = _planned(root, job)
        standing = [entry for entry in planned if entry.shard.samples]
        shards = [entry.shard for entry in standing]
        rows = write_manifest(folder / "samples.parquet", SAMPLES, _samples(root, standing))
        table = write_manifest(folder / "shards.parquet", SHARDS, _shards(job, shards))
        index = Index(
            splits=_splits(job, shards),
            samples=put_named(root, layout.index_key(job.segment, "samples", rows.sha256), rows),
            shards=put_named(root, layout.index_key(job.segment, "shards", table.sha256), table),
            omitted=_omitted(planned),
            omitted_count=sum(entry.shard.omitted_count for entry in planned),
        )
    progress.finish("index")
    return index


@dataclass(frozen=True, slots=True)
class _Entry:
    """A finished shard, and the position of its rows in the receipt."""

    shard: Shard
    receipt: Receipt
    first_row: int


def _planned(root: Store, job: Job) -> list[_Entry]:
    """All shards in the order of the plan, including those whose samples were all left out."""
    with fetched(root, job.shard_plan) as path:
        plans = list(planned_shards(path))
    entries: dict[tuple[str, str], _Entry] = {}
    unsure = {(plan.split, plan.name) for plan in plans}
    prefix = layout.shards_prefix(job.segment)
    infos = {info.key.removeprefix(prefix): info for info in listed(root, prefix)}
    for receipt in read_receipts(root, job.segment):
        if not unsure:
            break  # the others are for the same shards
        first_row = 0
        for shard in receipt.shards:
            name = (shard.split, shard.name)
            if name in unsure:  # of several receipts, the one that matches the object
                entries[name] = _Entry(shard, receipt, first_row)
                if is_noted(shard, infos.get):
                    unsure.remove(name)
            first_row += shard.samples
    missing = [plan.name for plan in plans if (plan.split, plan.name) not in entries]
    if missing:
        message = f"{format_count(len(missing), 'shard')} without a receipt, such as {missing[0]}"
        raise FatalError("run.failed", message, where=root.url, hint="run again")
    return [entries[plan.split, plan.name] for plan in plans]


def _omitted(planned: Iterable[_Entry]) -> tuple[Failure, ...]:
    failures = chain.from_iterable(entry.shard.omitted for entry in planned)
    return tuple(islice(failures, SHOWN_FAILURES))


def _samples(root: Store, standing: Iterable[_Entry]) -> Iterator[pa.RecordBatch]:
    next_id: Counter[str] = Counter()
    for entry in standing:
        shard, receipt = entry.shard, entry.receipt
        first_row, rows = entry.first_row, shard.samples
        for batch in read_ref(root, receipt.rows, SAMPLES, first_row=first_row, rows=rows):
            yield numbered(batch, next_id[shard.split])
        next_id[shard.split] += rows


def _shards(job: Job, shards: Sequence[Shard]) -> Iterator[pa.RecordBatch]:
    rows = [
        (job.segment, shard.split, file.name, file.bytes, samples, file.sha256)
        for shard in shards
        for file, samples in zip(shard.files, chain([shard.samples], repeat(0)), strict=False)
    ]
    if rows:
        yield pa.record_batch(
            [
                pa.array(column, field.type)
                for column, field in zip(zip(*rows, strict=True), SHARDS, strict=True)
            ],
            schema=SHARDS,
        )


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
