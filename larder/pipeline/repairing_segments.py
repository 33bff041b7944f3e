"""Writes a lost segment.json again: its ID, which covers what shaped the segment, proves it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby, product
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from larder.config.formats import NUMBERED, FormatOptions
from larder.config.images import ImageOptions
from larder.config.models import Dataset, Shards
from larder.errors import ConfigError, DamageError
from larder.manifest.digest import RowDigest
from larder.manifest.files import ManifestFile, read_manifest
from larder.manifest.schemas import SAMPLE_ORDER, SHARDS, SKIPPED
from larder.pipeline.image_rules import image_options
from larder.pipeline.job import ManifestRef, listed, scratch
from larder.pipeline.manifests import fetched, read_ref
from larder.pipeline.pack import laid_out, pack, planned_shards
from larder.pipeline.planned_segment import end_record, shape_of
from larder.pipeline.repairing_files import work_manifest
from larder.pipeline.verifying_batches import shards_of
from larder.pipeline.verifying_job import readable
from larder.samples.order import identity_parts
from larder.shards.model import ShardPlan
from larder.store.base import ObjectInfo, Store
from larder.versions import layout
from larder.versions.documents import (
    FileFacts,
    SegmentDocument,
    SegmentSplit,
    Shape,
    VersionDocument,
    parse_document,
)
from larder.versions.identity import SegmentIdentity, segment_id

__all__ = ["segment_again", "shape_again"]

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
    found = _again(dataset, root, version, segment)
    if found is None:
        return None
    prefix = layout.index_prefix(segment)
    files = tuple(file for file in version.files if file.path.startswith(prefix))
    return SegmentDocument(
        dataset=version.dataset,
        id=segment,
        shape=found.shape,
        validate=found.validate,
        splits=_splits(root, files, found.plans),
        files=files,
        skipped=_skipped(root, files),
    )


def shape_again(
    dataset: Dataset, root: Store, version: VersionDocument, segment: str
) -> Shape | None:
    """The shape of a segment whose document is lost, if it leads to its ID; see `segment_again`.

    Args:
        dataset: The dataset.
        root: The dataset's root.
        version: A version that uses the segment.
        segment: ID of the segment.

    Raises:
        DamageError: The plan is damaged.
    """
    found = _again(dataset, root, version, segment)
    return found.shape if found else None


class _Found(NamedTuple):
    """What led to the ID of a segment."""

    shape: Shape
    validate: str
    plans: list[ShardPlan]


def _again(dataset: Dataset, root: Store, version: VersionDocument, segment: str) -> _Found | None:
    others = _others(root, version, segment)
    for info in _work(root, segment, "order-"):
        with fetched(root, work_manifest(root, info.key)) as path, scratch() as folder:
            digest, samples, splits, labels = _digest(path)
            shapes = [replace(each.shape, packing=packing) for each in others for packing in (1, 2)]
            if splits <= set(dataset.split_names):
                order = ManifestFile(path, samples, 0, "")
                classes = [
                    names
                    for names in (
                        version.classes,
                        version.classes[:labels],
                        *(each.shape.options.classes for each in others),
                    )
                    if len(names) >= labels
                ]
                shapes += _shapes(dataset, classes, others, order, folder)
        for plans in _plans(root, segment):
            firsts = {
                split: next(own).index for split, own in groupby(plans, key=lambda plan: plan.split)
            }
            for shape, validate, on_bad in product(shapes, _VALIDATIONS, _ON_BAD):
                identity = SegmentIdentity(version.dataset, digest, shape, validate, on_bad, firsts)
                if segment_id(identity) == segment:
                    return _Found(shape, validate, plans)
    return None


def _plans(root: Store, segment: str) -> Iterator[list[ShardPlan]]:
    for info in _work(root, segment, "shards-"):
        with fetched(root, work_manifest(root, info.key)) as path:
            yield list(planned_shards(path))


def _work(root: Store, segment: str, name: str) -> list[ObjectInfo]:
    return list(listed(root, f"{layout.work_prefix(segment)}{name}"))


def _digest(path: Path) -> tuple[str, int, set[str], int]:
    """The digest of a sample order, as in `larder.samples.order.SampleOrder`.

    With the number of its samples, their splits, and the number after that of the last class.
    """
    digest, samples, splits, labels = RowDigest(), 0, set[str](), 0
    names = SAMPLE_ORDER.names[:4]
    for batch in read_manifest(path, SAMPLE_ORDER, columns=names):
        own = batch.filter(pc.not_equal(batch.column("split"), ""))
        columns = [*own.columns[:3], identity_parts(own.column("parts"))]
        digest.update_batch(pa.RecordBatch.from_arrays(columns, names))
        samples += own.num_rows
        splits |= set(pc.unique(own.column("split")).to_pylist())
        labels = max(labels, 1 + (pc.max(own.column("label")).as_py() or 0))
    return digest.hexdigest(), samples, splits, labels


def _shapes(
    dataset: Dataset,
    classes: Sequence[tuple[str, ...]],
    others: Sequence[SegmentDocument],
    order: ManifestFile,
    folder: Path,
) -> Iterator[Shape]:
    """What the dataset file makes of the samples: alone, or after one of the other segments."""
    shards = dataset.shards
    images = [*(each.shape.images for each in others), ImageOptions()]
    with suppress(ConfigError):  # a decoder of the dataset file is not installed here
        images.insert(0, image_options(dataset))
    for number, before in enumerate((None, *others)):
        last = before.shape if before else None
        place = folder / str(number)
        place.mkdir()
        for options in _options(shards, classes, others):
            try:
                own = laid_out(
                    shards.format, options, order, order.rows, last.options if last else None
                )
                packed = pack(
                    dataset,
                    order,
                    order.rows,
                    place,
                    options=own,
                    targets=last.split_bytes if last else None,
                )
            except ConfigError as error:
                if error.code != "config.invalid_value":
                    raise
                continue
            for allowed, packing in product(images, (1, 2)):
                yield shape_of(shards, own, packed.targets, packing, allowed)


def _options(
    shards: Shards, known: Sequence[tuple[str, ...]], others: Sequence[SegmentDocument]
) -> Iterator[FormatOptions]:
    """The options of the format, with what it knows of the segments next to it."""
    names: list[tuple[str, ...]] = [()]
    features = (shards.options.features or {}).values()
    if any(feature.source == "class" for feature in features):
        names = list(known)
    firsts = [0]
    if shards.format in NUMBERED:
        firsts += [end_record(each) for each in others]
    for classes, first in product(dict.fromkeys(names), dict.fromkeys(firsts)):
        yield replace(shards.options, classes=classes, first_record=first)


def _others(root: Store, version: VersionDocument, segment: str) -> list[SegmentDocument]:
    """The other segments of a version, as far as their documents are not damaged."""
    found = []
    for use in version.segments:
        key = layout.segment_key(use.id)
        if use.id != segment:
            try:
                found.append(parse_document(SegmentDocument, readable(root, key) or b"", key))
            except DamageError:
                continue
    return found


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
