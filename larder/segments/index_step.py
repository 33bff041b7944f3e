"""The index step: makes a segment's index, sources and bad samples from the receipts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.disk import scratch
from larder.errors import SHOWN_FAILURES, Failure, FatalError
from larder.jobs.manifests import fetched, put_named, read_ref
from larder.manifest.manifest_files import ManifestFile, ManifestWriter
from larder.manifest.schemas import SAMPLE_ORDER, SKIPPED, SOURCES, lists_of, packed_rows
from larder.manifest.sealed import StoredFile
from larder.progress import Progress
from larder.segments.cache_step import check_forms
from larder.segments.completeness import check_segment
from larder.segments.index_writer import IndexWriter
from larder.segments.pack import planned_shards
from larder.segments.reader_indexes import ReaderIndexes
from larder.segments.receipt_check import ORDER_COLUMNS, PlannedRows, receipt_problem
from larder.segments.segment_job import Job, open_root
from larder.segments.shard_receipts import FinishedShard, Receipt, damaged_receipt, planned_receipts
from larder.shards.formats import shard_format
from larder.shards.images.check import FormNote, joined
from larder.shards.model import ShardPlan, WrittenFile
from larder.shards.reading.fetch import skipped_failure
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import SegmentDocument, SegmentSplit
from larder.versions.identity import image_check
from larder.versions.index import Shard
from larder.versions.publish import read_segment


def index_shards(job: Job, *, progress: Progress) -> tuple[SegmentDocument, tuple[Failure, ...]]:
    """Write the manifests of a segment whose shards are all finished.

    Returns its document, which may not be written yet, and the first samples that were left out.
    The files of a segment that was complete before must be as published. RunError: the dataset's
    cache cannot hold all images.
    """
    progress.start("index")
    root = open_root(job)
    if job.new is not None and job.new.complete:
        if (document := read_segment(root, job.segment)) is None:
            message = f"segment {job.segment} was complete, and its document is gone"
            raise FatalError("run.failed", message, where=root.url, hint="run again")
        check_segment(root, document, progress)
        progress.finish("index")
        return document, tuple(_left_out(root, document))
    with fetched(root, job.manifests["shards"]) as shards, scratch() as folder:
        made = make_index(root, job, planned_shards(shards), folder)
        check_forms(job, root, made.forms)
        document = SegmentDocument(
            dataset=job.dataset.name,
            id=job.segment,
            shape=job.shape,
            validate=job.dataset.validate_,
            splits=made.splits,
            files=tuple(
                put_named(root, layout.index_key(job.segment, role, file.sha256), file, role)
                for role, file in made.files.items()
            ),
            skipped=made.omitted_count,
        )
    progress.finish("index")
    return document, tuple(made.omitted)


def _left_out(root: Store, document: SegmentDocument) -> Iterator[Failure]:
    shown = min(SHOWN_FAILURES, document.skipped)
    for file in document.files:
        if file.role == "skipped":
            rows = read_ref(root, file, SKIPPED, rows=shown)
            yield from chain.from_iterable(map(_failures, rows))


def _failures(skipped: pa.RecordBatch) -> Iterator[Failure]:
    for row in skipped.to_pylist():
        yield skipped_failure(row["key"], (part["source"] for part in row["parts"]), row["bad"])


def make_index(
    root: Store, job: Job, plans: Iterable[ShardPlan], folder: Path, *, writes: bool = True
) -> IndexBuild:
    """Make the files of a segment's index locally, in one pass over the receipts of its shards.

    A receipt that differs from the sample order is refused (``damage.manifest``), unless nothing
    is planned. With ``writes``, missing index files for other readers are written.
    """
    planned = None
    if order := job.manifests.get("order"):
        planned = PlannedRows(read_ref(root, order, SAMPLE_ORDER, columns=ORDER_COLUMNS))
    transformed = job.dataset.image_options.transform is not None
    format_ = shard_format(*job.shape.use)
    with IndexBuild(root, job, folder, writes=writes) as build:
        for plan, receipt in planned_receipts(root, job, plans):
            if planned is not None:
                rows = planned.take(plan.rows)
                if problem := receipt_problem(
                    plan, rows, receipt, format_, transformed=transformed
                ):
                    message = f"the receipt is not that of its shard: {problem}"
                    raise damaged_receipt(receipt.url, message)
            build.add(plan, receipt)
        build.finish()
    return build


_SOURCES = SOURCES.field("parts").type


def _sources(samples: pa.RecordBatch) -> pa.RecordBatch:
    """Turn samples by `larder.shards.model.ROWS` into rows of SOURCES, without label parts."""
    lists = samples.column("parts")
    parts = lists.flatten()
    kept = parts.field("source").is_valid()
    counts = np.append(0, np.cumsum(kept.to_numpy(zero_copy_only=False)))
    offsets = lists.offsets.to_numpy()
    lists = lists_of(_SOURCES, parts.filter(kept).field, counts[offsets - offsets[0]])
    return pa.RecordBatch.from_arrays(
        [samples.column("key"), samples.column("label"), lists], schema=SOURCES
    )


class IndexBuild(ExitStack):
    """The sums and files made from the receipts of a segment's shards.

    ``omitted`` are the first of the ``omitted_count`` bad samples left out.
    """

    def __init__(self, root: Store, job: Job, folder: Path, *, writes: bool) -> None:
        super().__init__()
        self.files: dict[str, ManifestFile] = {}
        self.splits: dict[str, SegmentSplit] = {}
        self.forms: dict[str, tuple[FormNote, ...]] = {}
        self.omitted: list[Failure] = []
        self.omitted_count = 0
        self._planned = 0
        self._segment = job.segment
        self._check = image_check(job.dataset)
        format_ = shard_format(*job.shape.use)
        self._indexes = ReaderIndexes(root, job.segment, format_, writes=writes)
        self._rows = self.enter_context(IndexWriter(folder))
        self._sources, self._skipped = (
            self.enter_context(ManifestWriter(folder / f"{role}.parquet", schema))
            for role, schema in {"sources": SOURCES, "skipped": SKIPPED}.items()
        )

    def finish(self) -> None:
        self.files["rows"] = self._rows.finish()
        self.close()
        self.files["sources"] = self._sources.file
        if self.omitted_count:
            self.files["skipped"] = self._skipped.file

    def add(self, plan: ShardPlan, receipt: Receipt) -> None:
        shard, split, first = receipt.shard, plan.split, self._planned
        for rows in receipt.rows():
            self._planned += rows.num_rows
            bad = rows.column("bad").is_valid()
            self._add_skipped(split, rows.filter(bad))
            samples = rows.filter(pc.invert(bad))
            if samples.num_rows:
                self._rows.append(shard.name, samples)
                self._sources.append_batch(_sources(samples))
        if shard.files:
            segment, first_row = self._segment, sum(each.samples for each in self.splits.values())
            files = tuple(self._stored(split, file) for file in shard.files)
            indexes = tuple(self._stored(split, file) for file in self._indexes.of(receipt))
            published = Shard(segment, split, first_row, shard.samples, first, files, indexes)
            self._rows.add_shard(published)
        self.forms[split] = joined([self.forms.get(split, ()), shard.forms])
        self._count(plan, shard)

    def _stored(self, split: str, file: WrittenFile) -> StoredFile:
        key = layout.shard_key(self._segment, split, file.name)
        if file.kind:
            key = layout.reader_index_key(self._segment, file.kind, split, file.name)
        return StoredFile(key, file.bytes, file.sha256, file.kind or "shard")

    def _add_skipped(self, split: str, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            records = packed_rows(rows, SKIPPED, split=split, check=self._check)
            self._skipped.append_batch(records)
            self.omitted += _failures(records.slice(0, SHOWN_FAILURES - len(self.omitted)))
            self.omitted_count += rows.num_rows

    def _count(self, plan: ShardPlan, shard: FinishedShard) -> None:
        before = self.splits.get(plan.split) or SegmentSplit(
            samples=0,
            shards=0,
            bytes=0,
            first_row=sum(facts.samples for facts in self.splits.values()),
            first_shard=plan.index,
            end_shard=plan.index,
        )
        self.splits[plan.split] = replace(
            before,
            samples=before.samples + shard.samples,
            shards=before.shards + bool(shard.files),
            bytes=before.bytes + shard.bytes,
            end_shard=plan.index + 1,
        )
