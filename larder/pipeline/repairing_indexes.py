"""Makes the manifests of a segment again: from the receipts of its shards, or from its samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from larder.errors import DamageError, LarderError, NotFoundError, RetryableError, StoreError
from larder.manifest.schemas import SAMPLES
from larder.pipeline.digests import read_digest
from larder.pipeline.index import index_files, index_listed
from larder.pipeline.job import Job, ManifestRef, NewSegment, listed
from larder.pipeline.manifests import read_ref
from larder.pipeline.receipts import Shard
from larder.pipeline.repairing_files import Unwritten, work_manifest
from larder.pipeline.repairing_segments import shape_again
from larder.pipeline.verifying_job import VerifyJob, readable
from larder.samples.columns import column_texts
from larder.shards.formats import shard_format
from larder.shards.model import ShardFile
from larder.store.base import Store
from larder.versions import layout
from larder.versions.conditions import KEPT
from larder.versions.documents import SegmentDocument, Shape, VersionDocument, parse_document

__all__ = ["SegmentManifests"]


@dataclass
class SegmentManifests:
    """The manifests of one segment, made again.

    Attributes:
        job: The verification.
        root: The dataset's root.
        version: A version that uses the segment.
        segment: ID of the segment.
        why: What kept them from being made, as far as anything did.
    """

    job: VerifyJob
    root: Store
    version: VersionDocument
    segment: str
    why: list[str] = field(default_factory=list)

    def made(self, role: str, folder: Path) -> Iterator[tuple[str, Path]]:
        """What a manifest may be made from, and the file that this gives.

        Args:
            role: Of the manifest.
            folder: A private directory.

        Raises:
            StoreError: The storage refuses access.
            RetryableError: The storage kept failing.
        """
        shape = self._shape()
        if shape is None:
            self.why.append("its segment.json has to be repaired first")
            return
        yield from self._from_receipts(shape, role, folder)
        if role in ("shards", "indexes"):
            yield from self._from_samples(shape, role, folder)

    def _shape(self) -> Shape | None:
        key = layout.segment_key(self.segment)
        try:
            data = readable(self.root, key)
            return parse_document(SegmentDocument, data or b"", key).shape
        except DamageError:
            pass
        try:
            return shape_again(self.job.dataset, self.root, self.version, self.segment)
        except (DamageError, NotFoundError):
            return None

    def _from_receipts(self, shape: Shape, role: str, folder: Path) -> Iterator[tuple[str, Path]]:
        """By each of the plans that led to the segment."""
        work = layout.work_prefix(self.segment)
        plans = [info.key for info in listed(self.root, f"{work}shards-")]
        orders = [info.key for info in listed(self.root, f"{work}order-")]
        for number, plan in enumerate(plans):
            place = folder / str(number)
            place.mkdir()
            try:
                known = work_manifest(self.root, plan)
                order = work_manifest(self.root, orders[0]) if orders else known
                found = index_files(Unwritten(self.root), self._job(shape, order, known), place)
            except (StoreError, RetryableError):
                raise
            except LarderError as error:
                self.why.append(f"{error.where.removeprefix(self.root.url)}: {error.message}")
                continue
            if role in found:
                yield "the receipts of the shards", found[role].path

    def _from_samples(self, shape: Shape, role: str, folder: Path) -> Iterator[tuple[str, Path]]:
        """By the manifest of samples, and the shards as they are."""
        prefix = layout.index_prefix(self.segment)
        files = self.version.files_of("samples")
        samples = ManifestRef.of(next(file for file in files if file.path.startswith(prefix)))
        place = folder / "samples"
        place.mkdir()
        job = self._job(shape, samples, samples)
        try:
            shards = list(self._shards(shape, samples))
            found = index_listed(Unwritten(self.root), job, shards, samples, place)
        except (DamageError, NotFoundError) as error:
            self.why.append(f"{error.where.removeprefix(self.root.url)}: {error.message}")
            return
        if role in found:
            yield "the manifest of samples and the shards", found[role].path

    def _shards(self, shape: Shape, samples: ManifestRef) -> Iterator[Shard]:
        """The shards that the manifest of samples names, with the digests of what is there."""
        format_ = shard_format(*shape.use)
        names = ["split", "shard"]
        rows = (
            row
            for batch in read_ref(self.root, samples, SAMPLES, columns=names)
            for row in zip(*(column_texts(batch.column(name)) for name in names), strict=True)
        )
        for (split, name), group in groupby(rows):
            files = []
            for own in format_.file_names(name):
                key = layout.shard_key(self.segment, split, own)
                files.append(ShardFile(own, *read_digest(self.root, key)))
            yield Shard(split, name, tuple(files), sum(1 for _ in group), (), 0)

    def _job(self, shape: Shape, order: ManifestRef, plan: ManifestRef) -> Job:
        return Job(
            dataset=self.job.dataset,
            cluster=self.job.cluster,
            inputs="",
            version="",
            new=NewSegment(
                self.segment, shape, {}, complete=True, sample_order=order, shard_plan=plan
            ),
            kept=(),
            classes=(),
            expected=None,
            conditions=KEPT,
            published=False,
            skipped=0,
            inventory=plan,
        )
