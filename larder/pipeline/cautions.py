"""The warnings of a plan: it can be executed, but may not be what was intended. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from larder.config.shape import use_of
from larder.pipeline.plan import Plan
from larder.samples.images import role
from larder.shards.formats.tfrecord.features import FeatureMap
from larder.units import format_count, format_names

CODES = {
    "reported_source": "the objects come from a report, which does not see what is newer",
    "nothing_expanded": "`source.archives` or `source.rows` is set, but there is nothing to expand",
    "merged_samples": "objects of one kind merge into one sample: `img.v1.jpg`, `img.v2.jpg`",
    "uneven_samples": "some samples do not have a part that others have",
    "unused_entries": "entries of annotation files fit no sample, and `samples.missing` is `keep`",
    "empty_split": "a split has no samples",
    "lone_classes": "a class occurs in one split only, though others have five samples per class",
    "unused_parts": "no sample has a part that `shards.features`, `shards.images.masks` or "
    "`decoding` names",
    "few_shards": "a split has fewer shards than readers, or only one",
    "unconditional_writes": "the storage ignores conditional writes, on which concurrent runs rely",
}
"""Every code that a warning may have, and what it means."""

_NAMES = 3
_SAMPLES_PER_CLASS = 5


def warnings(plan: Plan) -> list[dict[str, str]]:
    """All warnings of a plan, in the order of `CODES`: a code, and what is the case and what to do.

    For the documents of the plan and of the run that built it.
    """
    return [
        {"code": code, "message": _printable(message)}
        for code in CODES
        for message in _RULES[code](plan)
    ]


def _printable(message: str) -> str:
    """Keys come from the source and must not affect a terminal."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in message)


def _reported(plan: Plan) -> Iterator[str]:
    report = plan.source_state.inventory.report
    if report:
        yield (
            f"the objects are those of a report of {report.taken:%Y-%m-%d %H:%M} UTC"
            f" ({report.url}): what was added or removed since is not seen"
        )


def _nothing_expanded(plan: Plan) -> Iterator[str]:
    source, inside = plan.source_state.dataset.source, plan.source_state.inventory.inside
    if inside is not None and inside.containers:
        return
    if source.archives == "expand":
        yield "no object is a tar archive (*.tar): check source.archives and source.include"
    if source.rows is not None:
        yield "no object is a table, and each is a part of a sample as it is: check source.rows"


def _merged(plan: Plan) -> Iterator[str]:
    """Not of samples that ``samples.join`` puts together: it says which parts belong together."""
    merged = plan.sample_order.statistics.merged
    if merged.samples and plan.source_state.dataset.samples.join is None:
        (key, exts), *_ = merged.examples
        names = " and ".join(f"{key}.{ext}" for ext in exts)
        count = format_count(merged.samples, "sample")
        yield (
            f"{count} {_have(merged.samples)} several parts of one kind, such as {names}: the name"
            " up to the first dot is the sample; rename the files if they are separate samples"
        )


def _uneven(plan: Plan) -> Iterator[str]:
    """Only if samples have several parts; otherwise they are just of different kinds."""
    samples, statistics = plan.sample_order.samples, plan.sample_order.statistics
    lacking = [
        f"only {found.samples:,} {_have(found.samples)} {' or '.join(found.exts[:_NAMES])}"
        for found in statistics.roles
        if found.samples < samples
    ]
    if statistics.most_parts > 1 and lacking:
        yield f"of {format_count(samples, 'sample')}, {format_names(lacking, _NAMES)}"


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _unused_entries(plan: Plan) -> Iterator[str]:
    order = plan.sample_order
    if order.unfit_count:
        entries = "entry fits" if order.unfit_count == 1 else "entries fit"
        yield (
            f"{order.unfit_count:,} annotation {entries} no sample, such as {order.unfit[0].key}:"
            " check samples.annotations.key"
        )


def _empty_splits(plan: Plan) -> Iterator[str]:
    empty = [name for name, split in plan.sample_order.splits.items() if not split.samples]
    if empty:
        yield f"there are no samples in {format_names(empty, _NAMES)}: check splits"


def _lone_classes(plan: Plan) -> Iterator[str]:
    """Not of a split too small for all classes, nor of one class: a test split without labels."""
    order = plan.sample_order
    enough = _SAMPLES_PER_CLASS * np.count_nonzero(order.class_samples)
    counts = {
        split: samples
        for split, samples in order.split_classes.items()
        if sum(samples) >= enough and np.count_nonzero(samples) > 1
    }
    columns = zip(order.classes, zip(*counts.values(), strict=True), strict=False)
    lone = [
        f"{name} ({next(split for split, count in zip(counts, samples, strict=True) if count)})"
        for name, samples in columns
        if np.count_nonzero(samples) == 1
    ]
    if lone and len(counts) > 1:
        verb = "occurs" if len(lone) == 1 else "occur"
        yield (
            f"{len(lone):,} of {format_count(len(order.classes), 'class')} {verb} in one split"
            f" only: {format_names(lone, _NAMES)}: check their names if that is not intended"
        )


def _unused_parts(plan: Plan) -> Iterator[str]:
    dataset, statistics = plan.source_state.dataset, plan.sample_order.statistics
    if statistics.other_parts.objects:
        return
    exts = {part.ext for part in statistics.parts}
    options, transform = dataset.shards.options, dataset.shards.images
    features = FeatureMap(options)
    sources = {"part": exts, "image": {"" for ext in exts if features.is_image(ext)}}
    masks = {image.name for image in map(role, exts) if image.image}
    decoders = dataset.image_options.decoders
    used = {use_of(decoders, ext) for ext in exts}
    unused = {
        "shards.features": [
            name
            for name, feature in (options.features or {}).items()
            if feature.source in sources and feature.part not in sources[feature.source]
        ],
        "shards.images.masks": [
            name for name in (transform.masks if transform else ()) if name not in masks
        ],
        "decoding": [use.ext for use in decoders if use not in used],
    }
    for key, names in unused.items():
        if names:
            yield f"no sample has the part for {format_names(names, _NAMES)}: check {key}"


def _few_shards(plan: Plan) -> Iterator[str]:
    settings = plan.source_state.settings
    wanted = readers(settings.template)
    least = max(wanted, 2)
    for name, shards in plan.shards_of_split.items():
        samples = plan.sample_order.splits[name].samples
        if not samples or shards.count >= least:
            continue
        advice = f"set shards.count_min: {least}"
        if settings.dataset.shards.samples_per_shard is not None:
            advice = "lower shards.samples_per_shard"
        if samples < least:
            advice = f"it has only {format_count(samples, 'sample')}"
        reason = f"{settings.template_name} has {wanted:,} readers, and each needs one"
        if wanted == 1:
            reason = "a loader with 2 workers needs two"
        yield f"{name} has {format_count(shards.count, 'shard')}; {reason}: {advice}"


def readers(template: Mapping[str, Any]) -> int:
    """The number of processes of a trial that read shards at once, according to its template.

    ``resources.slots_per_trial`` times ``hyperparameters.workers`` (or ``num_workers``), the loader
    processes per slot; each counts as 1 if it is missing, 0 or not a whole number.
    """
    hyperparameters = _mapping(template.get("hyperparameters"))
    workers = hyperparameters.get("workers", hyperparameters.get("num_workers"))
    if isinstance(workers, Mapping):  # {type: const, val: 8}
        workers = workers.get("val")
    slots = _mapping(template.get("resources")).get("slots_per_trial")
    return _count(slots) * _count(workers)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 1


def _unconditional_writes(plan: Plan) -> Iterator[str]:
    kept = plan.source_state.conditions
    if kept and not kept.kept:
        headers = {"If-None-Match": kept.if_absent, "If-Match": kept.if_match}
        ignored = " and ".join(name for name, is_kept in headers.items() if not is_kept)
        yield (
            f"the storage ignores {ignored}: of two runs of this dataset that end at the same"
            " moment, the one with the older listing may win; run one at a time"
        )


_RULES = {
    "reported_source": _reported,
    "nothing_expanded": _nothing_expanded,
    "merged_samples": _merged,
    "uneven_samples": _uneven,
    "unused_entries": _unused_entries,
    "empty_split": _empty_splits,
    "lone_classes": _lone_classes,
    "unused_parts": _unused_parts,
    "few_shards": _few_shards,
    "unconditional_writes": _unconditional_writes,
}
