"""The index step: the manifests of samples, shards and skipped samples, from the receipts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, islice, repeat
from pathlib import Path

import pyarrow as pa

from larder.errors import Failure, FatalError
from larder.manifest.files import ManifestFile, read_manifest, write_manifest
from larder.manifest.schemas import INDEXES, SAMPLE_ORDER, SAMPLES, SHARDS, SKIPPED
from larder.pipeline.forms import check_forms
from larder.pipeline.job import Job, ManifestRef, UsedSegment, listed, open_root, put_named, scratch
from larder.pipeline.listed import listed_shards, listed_splits
from larder.pipeline.manifests import fetched, read_ref
from larder.pipeline.pack import planned_shards
from larder.pipeline.reader_indexes import Indexed, noted_indexes
from larder.pipeline.receipts import Receipt, Shard, read_receipts
from larder.pipeline.results import SHOWN_FAILURES
from larder.pipeline.skipped import skipped_rows
from larder.pipeline.standing import is_noted
from larder.progress import Progress
from larder.shards.formats import shard_format
from larder.shards.index import numbered
from larder.store.base import Store
from larder.units import format_count
from larder.versions import layout
from larder.versions.documents import FileFacts, SegmentSplit, SegmentUse, SplitFacts
from larder.versions.identity import image_check

__all__ = ["Index", "index_files", "index_listed", "index_shards"]


@dataclass(frozen=True, slots=True)
class Index:
    """The new segment, complete but for its document.

    Attributes:
        segment: Its shards and their manifests.
        omitted: Samples that were left out: the first ones by name.
        omitted_count: Number of samples left out.
    """

    segment: UsedSegment
    omitted: tuple[Failure, ...]
    omitted_count: int


def index_shards(job: Job, *, progress: Progress) -> Index:
    """Write the manifests of a segment whose shards are all finished.

    Args:
        job: The run.
        progress: Reports progress of stage ``index``.

    Raises:
        FatalError: ``run.failed``: a shard has no receipt.
        RunError: The cache that the dataset asks for cannot hold all images.
    """
    progress.start("index")
    root = open_root(job)
    with scratch() as folder:
        planned = _planned(root, job)
        check_forms(job, root, ((entry.shard.split, entry.shard.forms) for entry in planned))
        files = _manifests(root, job, planned, folder)
        table = read_manifest(files["shards"].path, SHARDS)
        facts = listed_splits(listed_shards(table, {}))
        index = Index(
            segment=UsedSegment(
                use=SegmentUse(job.segment),
                format=job.shape.use,
                splits=_splits(planned, facts),
                listed=facts,
                files=tuple(_put(root, job.segment, role, file) for role, file in files.items()),
            ),
            omitted=_omitted(planned),
            omitted_count=sum(entry.shard.omitted_count for entry in planned),
        )
    progress.finish("index")
    return index


def index_files(root: Store, job: Job, folder: Path) -> dict[str, ManifestFile]:
    """The manifests of the segment as local files, by role, from the receipts of its shards.

    Args:
        root: The dataset's root.
        job: Its segment, sample order and shard plan.
        folder: A private directory.

    Raises:
        FatalError: ``run.failed``: a shard has no receipt.
    """
    return _manifests(root, job, _planned(root, job), folder)


def index_listed(
    root: Store, job: Job, shards: Sequence[Shard], samples: ManifestRef, folder: Path
) -> dict[str, ManifestFile]:
    """The same from the manifest of samples, for shards that have no receipts.

    Args:
        root: The dataset's root.
        job: Its segment.
        shards: All of them, in the order of the manifest.
        samples: The manifest of samples.
        folder: A private directory.
    """
    receipt = Receipt("", tuple(shards), samples)
    first_rows = accumulate((shard.samples for shard in shards), initial=0)
    entries = [
        _Entry(0, shard, receipt, row) for shard, row in zip(shards, first_rows, strict=False)
    ]
    return _manifests(root, job, entries, folder)


def _manifests(
    root: Store, job: Job, planned: Sequence[_Entry], folder: Path
) -> dict[str, ManifestFile]:
    standing = [entry for entry in planned if entry.shard.samples]
    shards = [entry.shard for entry in standing]
    rows = write_manifest(folder / "samples.parquet", SAMPLES, _samples(root, standing))
    table = write_manifest(folder / "shards.parquet", SHARDS, _shards(job, shards))
    files = {"samples": rows, "shards": table}
    format_ = shard_format(*job.shape.use)
    if standing and format_.indexes:
        found = noted_indexes(root, job.segment, format_, map(_indexed, standing))
        files["indexes"] = write_manifest(folder / "indexes.parquet", INDEXES, found)
    if any(entry.shard.omitted_count for entry in planned):
        left_out = _skipped(root, job, planned, rows.path)
        files["skipped"] = write_manifest(folder / "skipped.parquet", SKIPPED, left_out)
    return files


def _put(root: Store, segment: str, role: str, file: ManifestFile) -> FileFacts:
    return put_named(root, layout.index_key(segment, role, file.sha256), file).facts(role)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A finished shard, its number, and the position of its rows in the receipt."""

    index: int
    shard: Shard
    receipt: Receipt
    first_row: int


def _planned(root: Store, job: Job) -> list[_Entry]:
    """All shards in the order of the plan, including those whose samples were all left out."""
    with fetched(root, job.shard_plan) as path:
        plans = list(planned_shards(path))
    entries: dict[tuple[str, str], _Entry] = {}
    numbers = {(plan.split, plan.name): plan.index for plan in plans}
    unsure = set(numbers)
    prefix = layout.shards_prefix(job.segment)
    infos = {info.key.removeprefix(prefix): info for info in listed(root, prefix)}
    for receipt in read_receipts(root, job.segment):
        if not unsure:
            break  # the others are for the same shards
        first_row = 0
        for shard in receipt.shards:
            name = (shard.split, shard.name)
            if name in unsure:  # of several receipts, the one that matches the object
                entries[name] = _Entry(numbers[name], shard, receipt, first_row)
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


def _skipped(
    root: Store, job: Job, planned: Iterable[_Entry], samples: Path
) -> Iterator[pa.RecordBatch]:
    failures = chain.from_iterable(entry.shard.omitted for entry in planned)
    return skipped_rows(
        read_ref(root, job.sample_order, SAMPLE_ORDER, columns=["split", "key", "parts"]),
        read_manifest(samples, SAMPLES, columns=["split", "key"]),
        {failure.key: failure.message for failure in failures},
        image_check(job.dataset),
    )


def _samples(root: Store, standing: Sequence[_Entry]) -> Iterator[pa.RecordBatch]:
    next_id: Counter[str] = Counter()
    for split, rows in _runs(standing):
        for batch in read_ref(root, rows[0], SAMPLES, first_row=rows[1], rows=rows[2]):
            yield numbered(batch, next_id[split])
            next_id[split] += batch.num_rows


def _indexed(entry: _Entry) -> Indexed:
    return Indexed(entry.shard, entry.receipt.rows, entry.first_row)


def _runs(standing: Sequence[_Entry]) -> Iterator[tuple[str, tuple[ManifestRef, int, int]]]:
    """The split of shards whose rows are consecutive, and the rows: read at once.

    A row group has the rows of many shards if samples are small.
    """
    held: tuple[str, tuple[ManifestRef, int, int]] | None = None
    for entry in standing:
        split, ref = entry.shard.split, entry.receipt.rows
        first_row, rows = entry.first_row, entry.shard.samples
        if held is not None:
            before, (held_ref, held_row, held_rows) = held
            if (before, held_ref, held_row + held_rows) == (split, ref, first_row):
                held = split, (ref, held_row, held_rows + rows)
                continue
            yield held
        held = split, (ref, first_row, rows)
    if held is not None:
        yield held


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


def _splits(planned: Sequence[_Entry], listed: Mapping[str, SplitFacts]) -> dict[str, SegmentSplit]:
    facts = {}
    first_row = 0
    for split, group in groupby(planned, key=lambda entry: entry.shard.split):
        numbers = [entry.index for entry in group]
        there = listed.get(split, SplitFacts(0, 0, 0, ()))
        facts[split] = SegmentSplit(
            samples=there.samples,
            shards=there.shards,
            bytes=there.bytes,
            first_row=first_row,
            first_shard=numbers[0],
            end_shard=numbers[-1] + 1,
        )
        first_row += there.samples
    return facts
