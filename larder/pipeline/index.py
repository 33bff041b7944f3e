"""The index step: the manifests of samples, shards and skipped samples, from the receipts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, groupby, islice, repeat
from pathlib import Path

import numpy as np
import pyarrow as pa

from larder.disk import scratch
from larder.errors import SHOWN_FAILURES, Failure, FatalError
from larder.jobs.manifests import fetched, put_named, read_ref
from larder.manifest.files import ManifestFile, read_manifest, write_manifest
from larder.manifest.reference import ManifestRef
from larder.manifest.schemas import INDEXES, SAMPLE_ORDER, SAMPLES, SHARDS, SKIPPED
from larder.pipeline.cache import check_forms
from larder.pipeline.completeness import check_segment
from larder.pipeline.contents import listed_shards, listed_splits
from larder.pipeline.finished import Finished, FinishedShard, finished_shards
from larder.pipeline.job import Job, SegmentJob, UsedSegment, open_root
from larder.pipeline.reader_indexes import Indexed, PutIndexes, index_rows, put_indexes
from larder.pipeline.receipts import Shard
from larder.progress import Progress
from larder.samples.columns import column_texts
from larder.shards.formats import shard_format
from larder.shards.index_rows import numbered
from larder.shards.reading.fetch import UNDECODABLE
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import (
    FileFacts,
    SegmentDocument,
    SegmentSplit,
    SegmentUse,
    SplitFacts,
)
from larder.versions.identity import image_check
from larder.versions.publish import read_segment

_BATCH_FILES = 1_000


@dataclass(frozen=True, slots=True)
class Index:
    """The new segment, complete but for its document.

    ``omitted`` has the first of the ``omitted_count`` samples that were left out, by name.
    """

    segment: UsedSegment
    omitted: tuple[Failure, ...]
    omitted_count: int


def index_shards(job: Job, *, progress: Progress) -> Index:
    """Write the manifests of a segment whose shards are all finished.

    Of a segment that was complete when the run was planned, everything is as it was published: a
    file that is missing, or differs, is damage. A RunError says that the cache that the dataset
    asks for cannot hold all images.
    """
    progress.start("index")
    root = open_root(job)
    if job.new is not None and job.new.complete:
        index = _published(root, job, progress)
        progress.finish("index")
        return index
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        planned = finished_shards(root, job)
        check_forms(job, root, ((entry.shard.split, entry.shard.forms) for entry in planned))
        files = index_files(root, job, planned, folder)
        for role, ref in (("order", job.sample_order), ("plan", job.shard_plan)):
            path = stack.enter_context(fetched(root, ref))
            files[role] = ManifestFile(path, ref.rows, ref.bytes, ref.sha256)
        table = read_manifest(files["shards"].path, SHARDS)
        facts = listed_splits(listed_shards(table, {}))
        index = Index(
            segment=UsedSegment(
                use=SegmentUse(job.segment),
                format=job.shape.use,
                splits=_splits(planned, facts),
                listed=facts,
                files=tuple(
                    FileFacts.of(
                        put_named(root, layout.index_key(job.segment, role, file.sha256), file),
                        role,
                    )
                    for role, file in files.items()
                ),
            ),
            omitted=_omitted(planned),
            omitted_count=sum(entry.shard.omitted_count for entry in planned),
        )
    progress.finish("index")
    return index


def _published(root: Store, job: Job, progress: Progress) -> Index:
    """The segment as its document describes it, once its files were found to be as it says."""
    document = read_segment(root, job.segment)
    if document is None:
        message = f"segment {job.segment} was complete, and its document is gone"
        raise FatalError("run.failed", message, where=root.url, hint="run again")
    check_segment(root, document, progress)
    rows = read_ref(root, ManifestRef.of(document.file("shards")), SHARDS)
    segment = UsedSegment(
        use=SegmentUse(document.id),
        format=document.shape.use,
        splits=document.splits,
        listed=listed_splits(listed_shards(rows, {})),
        files=document.files,
    )
    return Index(segment, tuple(_left_out(root, document)), document.skipped)


def _left_out(root: Store, document: SegmentDocument) -> Iterator[Failure]:
    """The first samples that a complete segment has left out."""
    shown = min(SHOWN_FAILURES, document.skipped)
    for file in document.files:
        if file.role == "skipped":
            rows = read_ref(
                root, ManifestRef.of(file), SKIPPED, columns=["key", "message"], rows=shown
            )
            for batch in rows:
                columns = (column.to_pylist() for column in batch.columns)
                for key, message in zip(*columns, strict=True):
                    yield Failure(key, UNDECODABLE, message)


def index_files(
    root: Store, job: SegmentJob, planned: Finished, folder: Path, put: PutIndexes = put_indexes
) -> dict[str, ManifestFile]:
    """The manifests of the segment as local files, by role, from the receipts of its shards."""
    rows = write_manifest(folder / "samples.parquet", SAMPLES, _samples(root, _standing(planned)))
    shards = (entry.shard for entry in _standing(planned))
    table = write_manifest(folder / "shards.parquet", SHARDS, _shards(job, shards))
    files = {"samples": rows, "shards": table}
    format_ = shard_format(*job.shape.use)
    if table.rows and format_.indexes:
        shards_of = (
            Indexed(entry.shard, entry.rows, entry.first_row) for entry in _standing(planned)
        )
        indexes = index_rows(root, job.segment, format_, shards_of, put)
        files["indexes"] = write_manifest(folder / "indexes.parquet", INDEXES, indexes)
    if any(entry.shard.omitted_count for entry in planned):
        left_out = _skipped(root, job, planned, rows.path)
        files["skipped"] = write_manifest(folder / "skipped.parquet", SKIPPED, left_out)
    return files


def _omitted(planned: Iterable[FinishedShard]) -> tuple[Failure, ...]:
    failures = chain.from_iterable(entry.shard.omitted for entry in planned)
    return tuple(islice(failures, SHOWN_FAILURES))


def _skipped(
    root: Store, job: SegmentJob, planned: Iterable[FinishedShard], samples: Path
) -> Iterator[pa.RecordBatch]:
    failures = chain.from_iterable(entry.shard.omitted for entry in planned)
    return skipped_rows(
        read_ref(root, job.sample_order, SAMPLE_ORDER, columns=["split", "key", "parts"]),
        read_manifest(samples, SAMPLES, columns=["split", "key"]),
        {failure.key: failure.message for failure in failures},
        image_check(job.dataset),
    )


def _standing(planned: Iterable[FinishedShard]) -> Iterator[FinishedShard]:
    return (entry for entry in planned if entry.shard.samples)


def _samples(root: Store, shards: Iterable[FinishedShard]) -> Iterator[pa.RecordBatch]:
    next_id: Counter[str] = Counter()
    for split, rows in _runs(shards):
        for batch in read_ref(root, rows[0], SAMPLES, first_row=rows[1], rows=rows[2]):
            yield numbered(batch, next_id[split])
            next_id[split] += batch.num_rows


def _runs(shards: Iterable[FinishedShard]) -> Iterator[tuple[str, tuple[ManifestRef, int, int]]]:
    """The split of shards whose rows are consecutive, and the rows: read at once.

    A row group has the rows of many shards if samples are small.
    """
    run: tuple[str, tuple[ManifestRef, int, int]] | None = None
    for entry in shards:
        split, ref = entry.shard.split, entry.rows
        first_row, rows = entry.first_row, entry.shard.samples
        if run is not None:
            before, (held_ref, held_row, held_rows) = run
            if (before, held_ref, held_row + held_rows) == (split, ref, first_row):
                run = split, (ref, held_row, held_rows + rows)
                continue
            yield run
        run = split, (ref, first_row, rows)
    if run is not None:
        yield run


def _shards(job: SegmentJob, shards: Iterable[Shard]) -> Iterator[pa.RecordBatch]:
    files = (
        (job.segment, shard.split, file.name, file.bytes, samples, file.sha256)
        for shard in shards
        for file, samples in zip(shard.files, chain([shard.samples], repeat(0)), strict=False)
    )
    while rows := list(islice(files, _BATCH_FILES)):
        yield pa.record_batch(
            [
                pa.array(column, field.type)
                for column, field in zip(zip(*rows, strict=True), SHARDS, strict=True)
            ],
            schema=SHARDS,
        )


def _splits(
    planned: Iterable[FinishedShard], listed: Mapping[str, SplitFacts]
) -> dict[str, SegmentSplit]:
    facts = {}
    first_row = 0
    for split, group in groupby(planned, key=lambda entry: entry.shard.split):
        first, last = _ends(entry.index for entry in group)
        total = listed.get(split, SplitFacts(0, 0, 0, ()))
        facts[split] = SegmentSplit(
            samples=total.samples,
            shards=total.shards,
            bytes=total.bytes,
            first_row=first_row,
            first_shard=first,
            end_shard=last + 1,
        )
        first_row += total.samples
    return facts


def _ends(numbers: Iterator[int]) -> tuple[int, int]:
    first = last = next(numbers)
    for number in numbers:
        last = number
    return first, last


UNKNOWN = "it was left out as bad, for a reason that was not recorded"
"""The message for a sample that the receipts only count."""

_PARTS = SKIPPED.field("parts").type


def skipped_rows(
    order: Iterable[pa.RecordBatch],
    kept: Iterable[pa.RecordBatch],
    messages: Mapping[str, str],
    check: str,
) -> Iterator[pa.RecordBatch]:
    """The planned samples that are in no shard, in one pass over both.

    ``order`` are rows of SAMPLE_ORDER, and ``kept`` of SAMPLES, in the same order; of both,
    ``split`` and ``key`` are needed, and ``parts`` of the former. ``messages`` is what is known of
    samples that were left out, by the key of an object or sample. Yields rows of SKIPPED.
    """
    following = chain(_keys(kept), [None])
    kept_key = next(following)
    for batch in order:
        left_out = np.zeros(len(batch), np.bool_)
        for number, key in enumerate(_keys([batch])):
            if key == kept_key:
                kept_key = next(following)
            else:
                left_out[number] = key[0] != ""  # not an object of no sample
        if left_out.any():
            yield _rows(batch.filter(pa.array(left_out)), messages, check)
    assert kept_key is None, "every sample was planned"


def _keys(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, str]]:
    for batch in batches:
        columns = (column_texts(batch.column(name)) for name in ("split", "key"))
        yield from zip(*columns, strict=True)


def _rows(batch: pa.RecordBatch, messages: Mapping[str, str], check: str) -> pa.RecordBatch:
    lists = batch.column("parts")
    entries = lists.flatten()
    fields = list(_PARTS.value_type)
    parts = pa.StructArray.from_arrays([entries.field(f.name) for f in fields], fields=fields)
    offsets = lists.offsets.to_numpy()
    owners = (
        [key, *(part["key"] for part in entry)]
        for key, entry in zip(column_texts(batch.column("key")), lists.to_pylist(), strict=True)
    )
    reasons = [next((messages[key] for key in keys if key in messages), UNKNOWN) for keys in owners]
    return pa.RecordBatch.from_arrays(
        [
            batch.column("split"),
            batch.column("key"),
            pa.ListArray.from_arrays(pa.array(offsets - offsets[0]), parts, type=_PARTS),
            pa.repeat(pa.scalar(check, pa.string()), len(batch)),
            pa.array(reasons, pa.string()),
        ],
        schema=SKIPPED,
    )
