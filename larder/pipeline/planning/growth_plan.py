"""Plans the segments that a version shares with the previous one, and its new samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from larder.config.models.cluster import Cluster
from larder.config.models.dataset import Dataset
from larder.config.shape import Transform
from larder.growth.compare import Changes, Comparison, changed_keys, compare
from larder.growth.content_check import ObjectCheck, PackedPart, same_contents
from larder.growth.decision import Decision, decide
from larder.growth.previous import Previous
from larder.growth.select import Selected, Selection
from larder.jobs.crew import reachable, saves_time
from larder.jobs.processes import ProcessPool, shared_pool
from larder.jobs.results import Totals
from larder.jobs.step_runner import runner_batches
from larder.manifest.manifest_files import read_manifest
from larder.manifest.schemas import SAMPLE_ORDER
from larder.pipeline.planning.source_state import SourceState
from larder.progress import Progress
from larder.samples.sample_order import SampleOrder
from larder.segments.derived_files import listed_splits
from larder.segments.image_rules import image_rules, planned_transform
from larder.segments.pack import pack
from larder.segments.stores import source_of
from larder.shards.formats import shard_format
from larder.shards.reading.readahead import WHOLE_SHARE
from larder.units import format_count
from larder.versions.documents import SegmentDocument, SegmentUse, SplitFacts
from larder.versions.identity import changed_option, image_check, is_first_build, weaker_check
from larder.versions.index import listed_shards
from larder.versions.omitted import Omitted, encode_omitted
from larder.versions.runs import NAMES

_PART_SECONDS = 0.1e-3
_PIECE = 512


@dataclass(frozen=True, slots=True, eq=False)
class GrowthPlan:
    """The segments that a version shares with the ``previous`` one, and its new samples.

    ``selected`` are the samples of the new segment. ``kept`` are the shared segments, ``uses`` what
    the version uses of them, and ``listed`` their listed shards in each split. ``omitted`` are
    their omitted rows, also as a .npy file if they are many. ``skipped`` counts bad samples that
    stay left out without being tried again. ``names`` are the keys of the first samples that
    differ, by kind.
    """

    previous: Previous | None
    decision: Decision
    changes: Changes
    selected: Selected
    kept: tuple[SegmentDocument, ...]
    uses: tuple[SegmentUse, ...]
    listed: Mapping[str, SplitFacts]
    omitted: Mapping[tuple[str, str], Omitted]
    omitted_file: bytes | None
    skipped: int
    names: Mapping[str, tuple[str, ...]]


def makes_anew(state: SourceState) -> bool:
    """Return whether class numbers, and splits by class, follow from the current samples alone."""
    return state.dataset.growth.mode == "rebuild" and not state.settings.compact


def plan_growth(
    state: SourceState,
    previous: Previous | None,
    order: SampleOrder,
    folder: Path,
    progress: Progress,
) -> GrowthPlan:
    """Compare all samples with the previous version, and decide which of its segments to keep."""
    dataset = state.dataset
    if previous is None:
        changes, read = Changes(added=order.samples), Totals(order.objects, order.object_bytes)
        selected = Selected(order.file, order.samples, order.digest, read, Totals())
        decision = decide((), changes, dataset.growth)
        names = {"added": tuple(_first_keys(order))}
        return GrowthPlan(None, decision, changes, selected, (), (), {}, {}, None, 0, names)
    transform = planned_transform(dataset)
    comparison = _compare(state, previous, order, transform, folder, progress)
    decision = decide(
        comparison.segments,
        comparison.changes,
        dataset.growth,
        fresh=_fresh(state, previous, order, comparison.changes, folder),
    )
    decision = replace(decision, reason=decision.reason + _older_forms(previous, decision))
    whole_bytes = state.cluster.copy_.memory // WHOLE_SHARE
    selection = Selection(previous, comparison, decision, transform, whole_bytes, folder)
    omitted = selection.omitted()
    encoded, file = encode_omitted(omitted)
    kept = [segment for segment in previous.segments if segment.id in decision.again]
    uses = {
        segment.id: {split: rows for (id_, split), rows in encoded.items() if id_ == segment.id}
        for segment in kept
    }
    shards = chain.from_iterable(segment.shards for segment in kept)
    return GrowthPlan(
        previous=previous,
        decision=decision,
        changes=comparison.changes,
        selected=selection.samples(order, image_check(dataset)),
        kept=tuple(segment.document for segment in kept),
        uses=tuple(SegmentUse(segment, rows) for segment, rows in uses.items()),
        listed=listed_splits(listed_shards(shards, omitted)),
        omitted=omitted,
        omitted_file=file,
        skipped=0 if decision.kind == "fresh" else comparison.changes.bad,
        names=changed_keys(comparison, previous, NAMES, folder),
    )


def _older_forms(previous: Previous, decision: Decision) -> str:
    """Describe kept segments in an earlier version of their format, to add to a reason."""
    shapes = [each.document.shape for each in previous.segments if each.id in decision.again]
    older = [shape for shape in shapes if shape.format_version < shard_format(shape.format).version]
    if not older:
        return ""
    segments = format_count(len(older), "segment")
    return f"; kept in an earlier version of {older[0].format}: {segments} (see larder compact)"


def _first_keys(order: SampleOrder) -> Iterator[str]:
    rows = min(order.samples, NAMES)
    for batch in read_manifest(order.file.path, SAMPLE_ORDER, columns=["key"], rows=rows):
        yield from batch.column("key").to_pylist()


def _compare(
    state: SourceState,
    previous: Previous,
    order: SampleOrder,
    transform: Transform | None,
    folder: Path,
    progress: Progress,
) -> Comparison:
    dataset = state.dataset
    check = image_check(dataset) if dataset.on_bad_sample == "skip" else None
    transforms = [segment.document.shape.images.transform for segment in previous.segments]
    source, rules = source_of(dataset, state.cluster), image_rules(dataset, state.cluster)
    with (
        _processes(dataset, state.cluster) as pool,
        ThreadPoolExecutor(pool.count if pool else 1, thread_name_prefix="check") as threads,
    ):

        def contents(parts: Sequence[PackedPart]) -> Sequence[bool]:
            if pool is None or not saves_time(_PART_SECONDS * len(parts), pool.count):
                return same_contents(source, rules, parts, progress=progress)
            call = partial(
                pool.call,
                contents_in_process,
                dataset,
                state.cluster,
                unit="the comparison with the previous version",
                progress=progress,
                stage="compare",
            )
            pieces = (parts[first : first + _PIECE] for first in range(0, len(parts), _PIECE))
            return [*chain.from_iterable(threads.map(call, pieces))]

        with ObjectCheck(source, rules, transforms, transform, progress, contents) as content:
            return compare(order, previous, check, content, folder)


def _processes(dataset: Dataset, cluster: Cluster) -> AbstractContextManager[ProcessPool | None]:
    """Open processes that compare contents, if they reach the stores; none with Dask and Ray."""
    here = cluster.runner.kind != "local" or not reachable(dataset.source, cluster.storage)
    return shared_pool(1 if here else runner_batches(cluster.runner, cluster.copy_))


def contents_in_process(
    dataset: Dataset, cluster: Cluster, parts: Sequence[PackedPart], *, progress: Progress
) -> list[bool]:
    source, rules = source_of(dataset, cluster), image_rules(dataset, cluster)
    return same_contents(source, rules, parts, progress=progress)


def _fresh(
    state: SourceState, previous: Previous, order: SampleOrder, changes: Changes, folder: Path
) -> str | None:
    """Return why all samples have to go into one new segment; None if they do not."""
    if option := changed_option(state.dataset, previous.segments[-1].document.shape):
        return option
    class_names = (each.document.shape.options.classes for each in previous.segments)
    if any(names != order.classes[: len(names)] for names in class_names):
        return "shards contain other names of classes"
    for split, facts in previous.version.splits.items():
        least = min(state.dataset.shards.count_min or 0, facts.samples)
        planned = facts.shards + sum(_unwritten(each.document, split) for each in previous.segments)
        if planned < least and split in state.dataset.split_names:
            return f"split {split} has fewer shards than shards.count_min"
    for each in previous.segments:
        if weaker := weaker_check(state.dataset, each.document):
            return weaker
    if state.settings.compact:
        segment = previous.segments[0].document
        targets = _targets(state.dataset, segment, order, folder)
        current = shard_format(state.dataset.shards.format).version
        is_first = is_first_build(previous.version, segment, changes.bad, targets, current)
        if changes.any or not is_first:
            return "larder compact"
    return None


def _targets(
    dataset: Dataset, segment: SegmentDocument, order: SampleOrder, folder: Path
) -> Mapping[str, int]:
    """Return the sizes of a first build's shards, for splits whose size is not ``shards.bytes``."""
    if dataset.shards.count_min is None:
        return {}
    shape, _, _ = pack(dataset, order.file, order.samples, folder, segment.shape.options)
    return shape.split_bytes


def _unwritten(segment: SegmentDocument, split: str) -> int:
    """Count the shards that were planned, but not written: all of their samples are bad."""
    facts = segment.splits.get(split)
    return facts.end_shard - facts.first_shard - facts.shards if facts else 0
