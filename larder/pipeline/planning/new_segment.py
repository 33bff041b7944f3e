"""The segment that a run would build, and the caches that are missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from larder.config.models.dataset import Dataset, Shards
from larder.config.shape import NUMBERED, FormatOptions
from larder.jobs.results import Totals
from larder.manifest.manifest_files import ManifestFile
from larder.pipeline.planning.growth_plan import GrowthPlan
from larder.pipeline.planning.source_state import SourceState
from larder.segments.pack import laid_out, pack
from larder.segments.segment_job import PlannedSegment
from larder.store.base import Store
from larder.versions.documents import SegmentDocument
from larder.versions.identity import dataset_cache_id, segment_id
from larder.versions.publish import read_cache, read_segment


def plan_segment(
    state: SourceState,
    root: Store,
    growth: GrowthPlan,
    classes: Sequence[str],
    folder: Path,
) -> tuple[PlannedSegment, ManifestFile] | tuple[None, None]:
    """Plan the segment to build, with its SHARD_PLAN; None if there are no samples for it.

    ``classes`` are in the order of their numbers.
    """
    dataset, selected, previous = state.dataset, growth.selected, growth.previous
    if not selected.samples and growth.kept:
        return None, None
    shards = dataset.shards
    targets = first_shards = before = None
    if growth.kept and previous:
        last = previous.segments[-1].document.shape
        targets, before = last.split_bytes, last.options
        first_shards = _first_shards(growth.kept)
    order = (selected.file, selected.samples)
    options = _options(shards, growth.kept, classes)
    options = laid_out(shards.format, options, *order, before)
    shape, splits, shard_plan = pack(
        dataset, *order, folder, options=options, targets=targets, first_shards=first_shards
    )
    filled = (split for split, totals in splits.items() if totals.count)
    firsts = {split: (first_shards or {}).get(split, 0) for split in filled}
    segment = segment_id(
        dataset=dataset.name,
        samples=selected.digest,
        shape=shape,
        validate=dataset.validate_,
        on_bad_sample=dataset.on_bad_sample,
        first_shards=firsts,
    )
    complete = read_segment(root, segment) is not None
    return PlannedSegment(segment, shape, complete, splits), shard_plan


def _options(
    shards: Shards, kept: Iterable[SegmentDocument], classes: Sequence[str]
) -> FormatOptions:
    """Return the options of the format, with the facts about the segment that the format needs."""
    options = shards.options
    features = (options.features or {}).values()
    if any(feature.source == "class" for feature in features):
        options = replace(options, classes=tuple(classes))
    if shards.format in NUMBERED:
        ends = (_end_record(segment) for segment in kept)
        options = replace(options, first_record=max(ends, default=0))
    return options


def _end_record(segment: SegmentDocument) -> int:
    """Return the number after a segment's last record; samples left out have a record too."""
    return segment.shape.options.first_record + segment.samples + segment.skipped


def _first_shards(kept: Iterable[SegmentDocument]) -> dict[str, int]:
    """Return the number after the last shard of the kept segments, by split."""
    first: dict[str, int] = {}
    for segment in kept:
        for split, facts in segment.splits.items():
            first[split] = max(first.get(split, 0), facts.end_shard)
    return first


def caches_to_build(
    dataset: Dataset, root: Store, kept: Iterable[SegmentDocument], new: PlannedSegment | None
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
