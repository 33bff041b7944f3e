"""The segment that a run would build, and the caches that are missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from larder.config.models.dataset import Dataset, Shards
from larder.config.shape import NUMBERED, FormatOptions, ImageOptions
from larder.growth.previous import Previous
from larder.jobs.results import Totals
from larder.manifest.files import ManifestFile
from larder.pipeline.planning.growth import GrowthPlan
from larder.pipeline.planning.source import SourceState
from larder.segments.image_rules import image_options
from larder.segments.pack import laid_out, pack
from larder.segments.segment_job import UsedSegment
from larder.shards.formats import shard_format
from larder.store.base import Store
from larder.versions.documents import SegmentDocument, Shape
from larder.versions.identity import SegmentIdentity, dataset_cache_id, segment_id
from larder.versions.publish import read_cache, read_segment


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """A segment that would be built; ``complete``: it exists already."""

    id: str
    shape: Shape
    complete: bool
    shard_plan: ManifestFile
    splits: Mapping[str, Totals]

    @property
    def shards(self) -> Totals:
        return sum(self.splits.values(), Totals())


def plan_segment(
    state: SourceState,
    root: Store,
    growth: GrowthPlan,
    classes: Sequence[str],
    folder: Path,
) -> PlannedSegment | None:
    """Plan the segment to build; None if there are no samples for it.

    ``classes`` are in the order of their numbers.
    """
    dataset, selected, previous = state.dataset, growth.selected, growth.previous
    if not selected.samples and growth.kept:
        return None
    shards = dataset.shards
    targets = first_shards = before = None
    if growth.kept and previous:
        last = previous.segments[-1].document.shape
        targets, before = last.split_bytes, last.options
        first_shards = _first_shards(growth.kept)
    order = (selected.file, selected.samples)
    options = _options(shards, growth.kept, previous, classes)
    options = laid_out(shards.format, options, *order, before)
    packed = pack(
        dataset, *order, folder, options=options, targets=targets, first_shards=first_shards
    )
    packing = 2 if packed.stretched else 1
    shape = _shape_of(shards, options, packed.targets, packing, image_options(dataset))
    filled = (split for split, totals in packed.splits.items() if totals.count)
    firsts = {split: (first_shards or {}).get(split, 0) for split in filled}
    identity = SegmentIdentity(
        dataset=dataset.name,
        samples=selected.digest,
        shape=shape,
        validate=dataset.validate_,
        on_bad_sample=dataset.on_bad_sample,
        first_shards=firsts,
    )
    segment = segment_id(identity)
    return PlannedSegment(
        id=segment,
        shape=shape,
        complete=read_segment(root, segment) is not None,
        shard_plan=packed.file,
        splits=packed.splits,
    )


def _options(
    shards: Shards, kept: Iterable[UsedSegment], previous: Previous | None, classes: Sequence[str]
) -> FormatOptions:
    """Return the options of the format, with the facts about the segment that the format needs."""
    options = shards.options
    features = (options.features or {}).values()
    if any(feature.source == "class" for feature in features):
        options = replace(options, classes=tuple(classes))
    if shards.format in NUMBERED:
        ids = {segment.id for segment in kept}
        ends = (
            _end_record(segment.document)
            for segment in (previous.segments if previous else ())
            if segment.id in ids
        )
        options = replace(options, first_record=max(ends, default=0))
    return options


def _shape_of(
    shards: Shards,
    options: FormatOptions,
    split_bytes: Mapping[str, int],
    packing: int,
    images: ImageOptions,
) -> Shape:
    """Return the shape of a segment of a dataset; see `larder.versions.documents.Shape`."""
    format_ = shard_format(shards.format, options)
    return Shape(
        format=shards.format,
        format_version=format_.version,
        bytes=shards.bytes,
        split_bytes=split_bytes,
        shuffle_seed=shards.shuffle_seed,
        options=options,
        samples_per_shard=shards.samples_per_shard,
        packing=packing,
        images=images,
        library=format_.library,
    )


def _end_record(segment: SegmentDocument) -> int:
    """Return the number after a segment's last record; samples left out have a record too."""
    samples = sum(facts.samples for facts in segment.splits.values())
    return segment.shape.options.first_record + samples + segment.skipped


def _first_shards(kept: Iterable[UsedSegment]) -> dict[str, int]:
    """Return the number after the last shard of the kept segments, by split."""
    first: dict[str, int] = {}
    for segment in kept:
        for split, facts in segment.splits.items():
            first[split] = max(first.get(split, 0), facts.end_shard)
    return first


def caches_to_build(
    dataset: Dataset, root: Store, kept: Iterable[UsedSegment], new: PlannedSegment | None
) -> Totals:
    """Return the number of cache files to build, and the bytes of the shards they are made from."""
    if dataset.cache is None:
        return Totals()
    missing = Totals()
    for segment in kept:
        if not _has_cache(dataset, root, segment.id):
            for facts in segment.splits.values():
                missing += Totals(1, facts.bytes) if facts.samples else Totals()
    if new and not _has_cache(dataset, root, new.id):
        for shards in new.splits.values():
            missing += Totals(1, shards.bytes) if shards.count else Totals()
    return missing


def _has_cache(dataset: Dataset, root: Store, segment: str) -> bool:
    cache = dataset_cache_id(dataset, segment)
    return cache is not None and read_cache(root, segment, cache) is not None
