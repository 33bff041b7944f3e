"""The plan: everything that a run would do, as a value. Making it writes only local files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from larder.config.models.dataset import Dataset, Shards
from larder.config.shape import FormatOptions
from larder.copy.prices import Cost, estimate_cost
from larder.copy.site import MirrorChoice, Site, mirror_choice
from larder.copy.skyplane.engine_choice import EngineChoice
from larder.errors import Failures
from larder.experiments.advice import Choices
from larder.experiments.delivery import Advice, DeliveredSplit
from larder.growth.previous import Previous, published_splits, read_previous
from larder.growth.select import Selected
from larder.jobs.results import Totals
from larder.manifest.manifest_files import ManifestFile, read_manifest
from larder.manifest.schemas import DUE, OBJECTS
from larder.pipeline.delivery_facts import choices, chosen, split_prefixes
from larder.pipeline.planning.expanding import match_annotations
from larder.pipeline.planning.growth_plan import GrowthPlan, makes_anew, plan_growth
from larder.pipeline.planning.source_state import SourceState
from larder.progress import Progress
from larder.samples.parts import with_labels
from larder.samples.sample_order import SampleOrder, objects_of, order_samples
from larder.segments.completeness import check_complete
from larder.segments.derived_files import NO_SHARDS
from larder.segments.mirror import due_copies, mirror_route, read_measured
from larder.segments.pack import laid_out, pack
from larder.segments.segment_job import PlannedSegment
from larder.segments.stores import source_of, storage_of
from larder.shards.formats import shard_format
from larder.source.expand.expanded import LABELS
from larder.source.unfit import Storage, Unfit, archived_among, unfit_keys
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import SegmentDocument, SegmentUse
from larder.versions.identity import dataset_cache_id, segment_id, split_rule, version_id
from larder.versions.publish import (
    Conditions,
    read_cache,
    read_conditions,
    read_segment,
    read_version,
)


class Plan(NamedTuple):
    """Everything that a run would do.

    ``sample_order`` has all samples, ``new`` is the segment to build, if there is one, and
    ``shard_plan`` its shards (schema SHARD_PLAN). ``copies`` counts the objects to copy to the
    mirror (None if nothing is mirrored), and ``due`` lists them (schema DUE). ``caches`` counts
    cache files to build, and the bytes of the shards they are made from.

    ``unfit`` are keys to mirror that the storage cannot hold. ``archived`` are objects to read that
    have to be restored first. ``published``: the version exists already, made from other inputs.
    ``conditions`` are None if they are not known yet.
    """

    source_state: SourceState
    sample_order: SampleOrder
    growth: GrowthPlan
    new: PlannedSegment | None
    shard_plan: ManifestFile | None
    mirror: MirrorChoice
    copies: Totals | None
    due: ManifestFile | None
    engine: EngineChoice | None
    caches: Totals
    unfit: Unfit
    archived: Unfit
    version: str
    published: bool
    cost: Cost
    copy_seconds: float | None
    conditions: Conditions | None

    @property
    def shards_of_split(self) -> dict[str, Totals]:
        return {split: self._shards_of(split) for split in self.sample_order.splits}

    @property
    def exact(self) -> bool:
        """Whether the bytes of shards to build are known, not estimated."""
        shards = self.source_state.dataset.shards
        return shards.images is None and shard_format(shards.format, shards.options).sizes_known

    @property
    def choices(self) -> Choices:
        """Every delivery. The cache counts as large as the shards, as it may not be built yet."""
        state, shards = self.source_state, self.shards
        omitted = sum(facts.omitted for facts in self.growth.listed.values())
        return choices(
            state.dataset,
            state.cluster,
            state.settings.template,
            shards,
            samples=self.sample_order.samples,
            omitted=omitted,
            unlisted=sum(rows.count for rows in self.growth.omitted.values()) > omitted,
            cache_bytes=shards.bytes if state.dataset.cache else None,
            patterns=chain.from_iterable(map(self._patterns_of, self.sample_order.splits)),
        )

    @property
    def delivery(self) -> Advice:
        return chosen(self.source_state.dataset, self.source_state.cluster, self.choices)

    @property
    def delivered_splits(self) -> dict[str, DeliveredSplit]:
        """The known facts of the version's splits, without estimated bytes."""
        uses = [*self.growth.uses, *([SegmentUse(self.new.id)] if self.new else [])]
        splits = {}
        for split, shards in self.shards_of_split.items():
            patterns = self._patterns_of(split)
            prefixes = split_prefixes(split, patterns, uses)
            size_bytes = shards.bytes if self.exact else 0
            splits[split] = DeliveredSplit(0, shards.count, size_bytes, patterns, None, prefixes)
        return splits

    def _patterns_of(self, split: str) -> tuple[str, ...]:
        """Return patterns of the split's shards; made-up ones for shards to build."""
        patterns = list(self.growth.listed.get(split, NO_SHARDS).patterns)
        if self.new and (count := self.new.splits[split].count):
            shards = self.source_state.dataset.shards
            name = f"{{1..{count}}}{shard_format(shards.format, shards.options).suffix}"
            patterns.append(layout.shard_key(self.new.id, split, name))
        return tuple(patterns)

    def _shards_of(self, split: str) -> Totals:
        listed = self.growth.listed.get(split, NO_SHARDS)
        new = self.new.splits[split] if self.new else Totals()
        return new + Totals(listed.shards, listed.bytes)

    @property
    def shards(self) -> Totals:
        return sum(self.shards_of_split.values(), Totals())


def make_plan(state: SourceState, folder: Path, progress: Progress) -> Plan:
    progress.start("plan", objects=state.inventory.objects)
    dataset, cluster = state.dataset, state.cluster
    root = storage_of(dataset, cluster)
    previous = None
    if state.previous is not None:
        check_complete(root, state.previous, caches_remade=True)
        previous = read_previous(root, state.previous)
    sample_order = _order(state, previous, folder)
    growth = plan_growth(state, previous, sample_order, folder, progress)
    new, shard_plan = plan_segment(state, root, growth, sample_order.classes, folder)
    version = _version_id(dataset, new, growth, sample_order.classes)
    published = (new is None or new.complete) and read_version(root, version) is not None
    checked = sample_order.objects if dataset.decoding else sample_order.statistics.images
    mirror = mirror_choice(dataset, cluster, images=checked)
    unfit = _unfit(state, root, folder) if mirror.wanted and not published else Unfit()
    due, copies = None, Totals() if mirror.wanted and new else None
    if mirror.wanted and new and not new.complete:
        md5 = source_of(dataset, cluster).features.etag_is_md5 and root.features.etag_is_md5
        due, copies = due_copies(growth.selected.file.path, root, md5=md5, work_dir=folder)
    measured = read_measured(root, dataset, cluster) if copies and copies.count else None
    progress.advance("plan", objects=state.inventory.objects)
    progress.finish("plan")
    return Plan(
        source_state=state,
        sample_order=sample_order,
        growth=growth,
        new=new,
        shard_plan=shard_plan,
        mirror=mirror,
        copies=copies,
        due=due,
        engine=mirror_route(dataset, cluster, copies).choice if copies and copies.count else None,
        caches=caches_to_build(dataset, root, growth.kept, new),
        unfit=unfit,
        archived=_archived(state, growth.selected, new, due, folder),
        version=version,
        published=published,
        cost=_cost(state, copies, growth.selected, new),
        copy_seconds=measured.expected_seconds(copies) if measured and copies else None,
        conditions=read_conditions(root),
    )


def _order(state: SourceState, previous: Previous | None, folder: Path) -> SampleOrder:
    objects = read_manifest(state.inventory.file.path, OBJECTS)
    labels = state.inventory.labels
    if labels is not None:
        objects = with_labels(objects, read_manifest(labels.path, LABELS), folder)
    order = order_samples(
        objects,
        state.dataset,
        label_files=state.label_files,
        out=folder / "sample-order.parquet",
        work_dir=folder,
        known_classes=() if makes_anew(state) else state.classes,
        published=_kept_splits(state, previous, folder),
        annotated=match_annotations(state.dataset, state.inventory, state.annotations, folder),
    )
    # Paths that could not be listed are bad keys, too, so that they are skipped and reported.
    failures = Failures()
    failures.add_counted(state.inventory.failures, state.inventory.unlisted)
    failures.add_counted(order.bad_keys.shown, order.bad_keys.count)
    return replace(order, bad_keys=failures, empty=state.inventory.empty)


def _kept_splits(
    state: SourceState, previous: Previous | None, folder: Path
) -> Iterator[pa.RecordBatch]:
    """Yield the samples of the previous version that keep their splits, if classes are divided."""
    rule = split_rule(state.dataset)
    if not rule or previous is None or previous.version.split_rule != rule or makes_anew(state):
        return iter(())
    return published_splits(previous, state.dataset.split_names, folder)


def plan_segment(
    state: SourceState, root: Store, growth: GrowthPlan, classes: Sequence[str], folder: Path
) -> tuple[PlannedSegment, ManifestFile] | tuple[None, None]:
    """Plan the segment to build, with its SHARD_PLAN; None if there are no samples for it."""
    dataset, selected, previous = state.dataset, growth.selected, growth.previous
    if not selected.samples and growth.kept:
        return None, None
    shards = dataset.shards
    targets = before = None
    if growth.kept and previous:
        last = previous.segments[-1].document.shape
        targets, before = last.split_bytes, last.options
    first_shards = _first_shards(growth.kept)
    order = (selected.file, selected.samples)
    options = _options(shards, growth.kept, classes)
    options = laid_out(shards.format, options, *order, before)
    shape, splits, shard_plan = pack(
        dataset, *order, folder, options, targets=targets, first_shards=first_shards
    )
    filled = (split for split, totals in splits.items() if totals.count)
    firsts = {split: first_shards.get(split, 0) for split in filled}
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
    if shard_format(shards.format).numbered:
        ends = (
            each.shape.options.first_record + each.samples + each.skipped  # these have numbers, too
            for each in kept
        )
        options = replace(options, first_record=max(ends, default=0))
    return options


def _first_shards(kept: Iterable[SegmentDocument]) -> dict[str, int]:
    """Return the number after the last shard of the kept segments, by split."""
    first: dict[str, int] = {}
    for segment in kept:
        for split, facts in segment.splits.items():
            first[split] = max(first.get(split, 0), facts.end_shard)
    return first


def _version_id(
    dataset: Dataset, new: PlannedSegment | None, growth: GrowthPlan, classes: tuple[str, ...]
) -> str:
    segments = [*(segment.id for segment in growth.kept), *([new.id] if new else [])]
    return version_id(
        dataset.name,
        [(segment, dataset_cache_id(dataset, segment)) for segment in segments],
        growth.omitted,
        classes=classes,
        split_names=dataset.split_names,
        skipped=growth.selected.skipped_digest,
        rule=split_rule(dataset),
    )


def _unfit(state: SourceState, root: Store, folder: Path) -> Unfit:
    """Return the keys that would be mirrored, and that the storage cannot hold."""
    path, columns = state.inventory.file.path, ("key", "size_bytes")
    return unfit_keys(
        lambda: read_manifest(path, OBJECTS, columns=columns),
        Storage.of(root),
        layout.MIRROR_PREFIX,
        work_dir=folder,
    )


def caches_to_build(
    dataset: Dataset, root: Store, kept: Iterable[SegmentDocument], new: PlannedSegment | None
) -> Totals:
    """Count the cache files to build, and the bytes of the shards they are made from."""
    if dataset.cache is None:
        return Totals()
    splits = {
        segment.id: [facts.bytes for facts in segment.splits.values() if facts.samples]
        for segment in kept
    }
    if new:
        splits[new.id] = [shards.bytes for shards in new.splits.values() if shards.count]
    missing = Totals()
    for segment, sizes in splits.items():
        cache = dataset_cache_id(dataset, segment)
        if cache is None or read_cache(root, segment, cache) is None:
            missing += Totals(len(sizes), sum(sizes))
    return missing


def _archived(
    state: SourceState,
    selected: Selected,
    new: PlannedSegment | None,
    due: ManifestFile | None,
    folder: Path,
) -> Unfit:
    """Return the archived objects that have to be read, without those packed or copied before."""
    archived = state.inventory.archived
    if new is None or new.complete or archived is None:
        return Unfit()
    objects = objects_of(selected.file.path, selected.samples)
    return archived_among(read_manifest(due.path, DUE) if due else objects, archived, folder)


def _cost(
    state: SourceState, copies: Totals | None, selected: Selected, new: PlannedSegment | None
) -> Cost:
    """Estimate the cost of the bytes that are copied, or packed if there is no mirror."""
    crossing, written = selected.read if copies is None else copies, copies or Totals()
    if new is None or new.complete:
        crossing = written = Totals()
    else:
        written += new.shards
    return estimate_cost(
        Site.of(state.dataset.source),
        Site.of(state.cluster.storage),
        size_bytes=crossing.bytes,
        objects=crossing.count,
        written=written.count,
    )
