"""Writes a lost segment.json again: its ID, which covers what shaped the segment, proves it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby, product
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from larder.config.models import Dataset
from larder.errors import ConfigError, DamageError
from larder.manifest.digest import RowDigest
from larder.manifest.files import ManifestFile, read_manifest
from larder.manifest.schemas import SAMPLE_ORDER, SHARDS, SKIPPED
from larder.pipeline.image_rules import image_options
from larder.pipeline.job import ManifestRef, listed
from larder.pipeline.manifests import fetched, read_ref
from larder.pipeline.pack import laid_out, planned_shards
from larder.pipeline.repairing_files import work_manifest
from larder.pipeline.verifying_batches import shards_of
from larder.samples.order import identity_parts
from larder.shards.formats import shard_format
from larder.shards.model import ShardPlan
from larder.store.base import ObjectInfo, Store
from larder.versions import layout
from larder.versions.documents import (
    FileFacts,
    SegmentDocument,
    SegmentSplit,
    Shape,
    VersionDocument,
)
from larder.versions.identity import SegmentIdentity, segment_id
from larder.versions.publish import read_segment

__all__ = ["segment_again"]

_VALIDATIONS = ("header", "decode", "none")
_ON_BAD = ("fail", "skip")


def segment_again(
    dataset: Dataset, root: Store, version: VersionDocument, segment: str
) -> SegmentDocument | None:
    """The document of a segment, from version.json, its manifests, and the plan it was made by.

    Args:
        dataset: The dataset, whose options may be those that shaped the segment.
        root: The dataset's root.
        version: A version that uses the segment.
        segment: ID of the segment.

    Returns:
        None if what is still there does not lead to this ID.

    Raises:
        DamageError: A manifest is damaged.
    """
    prefix = layout.index_prefix(segment)
    files = tuple(file for file in version.files if file.path.startswith(prefix))
    for info in _work(root, segment, "order-"):
        with fetched(root, work_manifest(root, info.key)) as path:
            digest, samples = _digest(path)
            shapes = list(_shapes(dataset, root, version, segment, path, samples))
        for plans in _plans(root, segment):
            firsts = {
                split: next(own).index for split, own in groupby(plans, key=lambda plan: plan.split)
            }
            for shape, validate, on_bad in product(shapes, _VALIDATIONS, _ON_BAD):
                identity = SegmentIdentity(version.dataset, digest, shape, validate, on_bad, firsts)
                if segment_id(identity) == segment:
                    return SegmentDocument(
                        dataset=version.dataset,
                        id=segment,
                        shape=shape,
                        validate=validate,
                        splits=_splits(root, files, plans),
                        files=files,
                        skipped=_skipped(root, files),
                    )
    return None


def _plans(root: Store, segment: str) -> Iterator[list[ShardPlan]]:
    for info in _work(root, segment, "shards-"):
        with fetched(root, work_manifest(root, info.key)) as path:
            yield list(planned_shards(path))


def _work(root: Store, segment: str, name: str) -> list[ObjectInfo]:
    return list(listed(root, f"{layout.work_prefix(segment)}{name}"))


def _digest(path: Path) -> tuple[str, int]:
    """The digest of a sample order, as in `larder.samples.order.SampleOrder`; its samples."""
    digest, samples = RowDigest(), 0
    names = SAMPLE_ORDER.names[:4]
    for batch in read_manifest(path, SAMPLE_ORDER, columns=names):
        own = batch.filter(pc.not_equal(batch.column("split"), ""))
        columns = [*own.columns[:3], identity_parts(own.column("parts"))]
        digest.update_batch(pa.RecordBatch.from_arrays(columns, names))
        samples += own.num_rows
    return digest.hexdigest(), samples


def _shapes(
    dataset: Dataset, root: Store, version: VersionDocument, segment: str, order: Path, samples: int
) -> Iterator[Shape]:
    """What may have shaped the segment: the dataset file, or what shaped the others."""
    shards = dataset.shards
    others: list[Shape] = []
    for use in version.segments:
        try:
            other = read_segment(root, use.id) if use.id != segment else None
        except DamageError:
            continue
        others += [other.shape] if other is not None else []
    file = ManifestFile(order, samples, 0, "")
    for before in (None, *others):
        try:
            options = laid_out(
                shards.format, shards.options, file, samples, before.options if before else None
            )
            images = image_options(dataset)
        except ConfigError:
            continue
        for packing in (1, 2):
            yield Shape(
                format=shards.format,
                format_version=shard_format(shards.format, options).version,
                bytes=shards.bytes,
                split_bytes=before.split_bytes if before else {},
                shuffle_seed=shards.shuffle_seed,
                options=options,
                samples_per_shard=shards.samples_per_shard,
                packing=packing,
                images=images,
            )
    for shape in others:
        for packing in (1, 2):
            yield replace(shape, packing=packing)


def _splits(
    root: Store, files: Iterable[FileFacts], plans: Iterable[ShardPlan]
) -> dict[str, SegmentSplit]:
    rows = [
        row
        for file in files
        if file.role == "shards"
        for batch in read_ref(root, ManifestRef.of(file), SHARDS)
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]
    shards = list(shards_of(rows))
    found, first_row = {}, 0
    for split, group in groupby(plans, key=lambda plan: plan.split):
        numbers = [plan.index for plan in group]
        own = [shard for shard in shards if shard.split == split]
        found[split] = SegmentSplit(
            samples=sum(shard.rows for shard in own),
            shards=len(own),
            bytes=sum(shard.shard_bytes for shard in own),
            first_row=first_row,
            first_shard=numbers[0],
            end_shard=numbers[-1] + 1,
        )
        first_row += found[split].samples
    return found


def _skipped(root: Store, files: Iterable[FileFacts]) -> int:
    return sum(
        batch.num_rows
        for file in files
        if file.role == "skipped"
        for batch in read_ref(root, ManifestRef.of(file), SKIPPED, columns=["split"])
    )
