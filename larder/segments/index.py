"""The index step: the manifests of samples, shards and bad samples, concatenated from receipts.

The samples are also written as columns, for readers that have numpy only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from larder.disk import scratch
from larder.errors import SHOWN_FAILURES, Failure, FatalError
from larder.jobs.manifests import fetched, put_named, read_ref
from larder.manifest.files import ManifestFile, ManifestWriter
from larder.manifest.schemas import INDEXES, SAMPLES, SKIPPED
from larder.progress import Progress
from larder.segments.cache import check_forms
from larder.segments.columns import ColumnsWriter
from larder.segments.completeness import check_segment
from larder.segments.contents import listed_shards, listed_splits, read_listed
from larder.segments.job import Job, SegmentJob, UsedSegment, open_root
from larder.segments.reader_indexes import PutIndexes, ShardIndexes, put_indexes
from larder.segments.receipts import Receipt, Shard, planned_receipts
from larder.shards.formats import shard_format
from larder.shards.images.check import FormNote, joined
from larder.shards.index_rows import sample_rows
from larder.shards.model import ShardPlan
from larder.shards.reading.fetch import skipped_failure
from larder.store.base import Store
from larder.versions import layout
from larder.versions.columns import Shard as PublishedShard
from larder.versions.columns import ShardFile
from larder.versions.documents import FileFacts, SegmentDocument, SegmentSplit, SegmentUse
from larder.versions.identity import image_check
from larder.versions.publish import read_segment


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
        made = make_manifests(root, job, stack.enter_context(scratch()))
        check_forms(job, root, made.forms)
        files = {**made.files}
        for role, ref in (("order", job.sample_order), ("plan", job.shard_plan)):
            path = stack.enter_context(fetched(root, ref))
            files[role] = ManifestFile(path, ref.rows, ref.bytes, ref.sha256)
        listed = listed_splits(listed_shards(job.segment, made.shards, {}))
        index = Index(
            segment=UsedSegment(
                use=SegmentUse(job.segment),
                format=job.shape.use,
                splits=made.splits,
                listed=listed,
                files=tuple(
                    FileFacts.of(
                        put_named(root, layout.index_key(job.segment, role, file.sha256), file),
                        role,
                    )
                    for role, file in files.items()
                ),
            ),
            omitted=tuple(made.omitted),
            omitted_count=made.omitted_count,
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
    segment = UsedSegment(
        use=SegmentUse(document.id),
        format=document.shape.use,
        splits=document.splits,
        listed=listed_splits(read_listed(root, document.files, {})),
        files=document.files,
    )
    return Index(segment, tuple(_left_out(root, document)), document.skipped)


def _left_out(root: Store, document: SegmentDocument) -> Iterator[Failure]:
    """The first samples that a complete segment has left out."""
    shown = min(SHOWN_FAILURES, document.skipped)
    columns = ["key", "parts", "message"]
    for file in document.files:
        if file.role == "skipped":
            rows = read_ref(root, file.manifest, SKIPPED, columns=columns, rows=shown)
            for row in chain.from_iterable(batch.to_pylist() for batch in rows):
                keys = (part["key"] for part in row["parts"])
                yield skipped_failure(row["key"], keys, row["message"])


def make_manifests(
    root: Store, job: SegmentJob, folder: Path, put: PutIndexes = put_indexes
) -> Manifests:
    """Make the manifests of a segment as local files, in one pass over the receipts of its shards.

    ``put`` is called for a shard that lacks an index file for other readers.
    """
    schemas = {"samples": SAMPLES, "indexes": INDEXES, "skipped": SKIPPED}
    with ExitStack() as stack:
        columns = stack.enter_context(ColumnsWriter(folder))
        writers = {
            role: stack.enter_context(ManifestWriter(folder / f"{role}.parquet", schema))
            for role, schema in schemas.items()
        }
        manifests = Manifests(root, job, writers, columns, put)
        for plan, receipt in planned_receipts(root, job):
            manifests.add(plan, receipt)
        columns_file = columns.finish()
    indexed = bool(shard_format(*job.shape.use).indexes and manifests.shards)
    used = {"samples", *(["indexes"] if indexed else [])}
    used |= {"skipped"} if manifests.omitted_count else set()
    files = {role: writer.file for role, writer in writers.items() if role in used}
    manifests.files = {**files, "rows": columns_file}
    return manifests


class Manifests:
    """What the receipts of a segment's shards add up to.

    ``files`` are its manifests by role, once all shards were added; ``shards`` are those with
    samples; ``forms`` says what the images of each split decode to; ``omitted`` are the first of
    the ``omitted_count`` samples that were left out as bad.
    """

    def __init__(
        self,
        root: Store,
        job: SegmentJob,
        writers: Mapping[str, ManifestWriter],
        columns: ColumnsWriter,
        put: PutIndexes,
    ) -> None:
        self.files: Mapping[str, ManifestFile] = {}
        self.splits: dict[str, SegmentSplit] = {}
        self.forms: dict[str, tuple[FormNote, ...]] = {}
        self.omitted: list[Failure] = []
        self.omitted_count = 0
        self.shards: list[PublishedShard] = []
        self._segment = job.segment
        self._check = image_check(job.dataset)
        self._indexes = ShardIndexes(root, job.segment, shard_format(*job.shape.use), put)
        self._writers = writers
        self._columns = columns

    def add(self, plan: ShardPlan, receipt: Receipt) -> None:
        """Add the next shard in the order of the plan."""
        shard, split = receipt.shard, plan.split
        first_id = self.splits[split].samples if split in self.splits else 0
        for rows in receipt.rows():
            bad = rows.column("bad").is_valid()
            self._add_skipped(split, rows.filter(bad))
            samples = rows.filter(pc.invert(bad))
            numbered = sample_rows(samples, self._segment, split, shard.name, first_id)
            self._writers["samples"].append_batch(numbered)
            self._columns.append(numbered)
            first_id += samples.num_rows
        if shard.files:
            files = tuple(ShardFile(file.name, file.bytes, file.sha256) for file in shard.files)
            self.shards.append(PublishedShard(split, shard.samples, files))
            self._columns.add_shard(self.shards[-1])
        if shard.samples:
            self._writers["indexes"].append(self._indexes.rows(receipt))
        self.forms[split] = joined([self.forms.get(split, ()), shard.forms])
        self._count(plan, shard)

    def _add_skipped(self, split: str, rows: pa.RecordBatch) -> None:
        for row in rows.to_pylist():
            keys = [part["source"] for part in row["parts"]]
            parts = [
                {
                    "ext": part["ext"],
                    "key": part["source"],
                    "size_bytes": part["length"],
                    "etag": part["etag"],
                }
                for part in row["parts"]
            ]
            record = (split, row["key"], parts, self._check, row["bad"])
            self._writers["skipped"].append([record])
            self.omitted_count += 1
            if len(self.omitted) < SHOWN_FAILURES:
                self.omitted.append(skipped_failure(row["key"], keys, row["bad"]))

    def _count(self, plan: ShardPlan, shard: Shard) -> None:
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
