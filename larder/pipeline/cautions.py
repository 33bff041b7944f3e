"""The warnings of a plan: it can be executed, but may not be what was intended. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unicodedata import normalize

import numpy as np

from larder.config.decoders import use_of
from larder.pipeline.plan import Plan
from larder.pipeline.settings import Settings
from larder.samples.images import role
from larder.samples.statistics import MOST_EXTENSIONS, RoleCount
from larder.shards.features import FeatureMap
from larder.units import format_bytes, format_count, format_names

CODES = {
    "reported_source": "the objects come from a report, which does not see what is newer",
    "nothing_expanded": "`source.archives` or `source.rows` is set, but there is nothing to expand",
    "merged_samples": "objects of one kind merge into one sample: `img.v1.jpg`, `img.v2.jpg`",
    "uneven_samples": "some samples do not have a part that others have",
    "many_extensions": "there are so many extensions that names probably contain other dots",
    "unused_entries": "entries of annotation files fit no sample, and `samples.missing` is `keep`",
    "empty_split": "a split has no samples",
    "unseen_classes": "a class in `labels.classes` has no samples",
    "alike_classes": "names of classes look the same: they differ only in Unicode or white space",
    "lone_classes": "a class occurs in one split only, though others have five samples per class",
    "empty_features": "no sample has the part that a feature in `shards.features` is made of",
    "empty_masks": "no sample has an image that `shards.images.masks` names",
    "unused_decoders": "no sample has a part with an extension in `decoding`",
    "large_samples": "most samples are larger than `shards.bytes`, so each has a shard of its own",
    "few_shards": "a split has fewer shards than readers, or only one",
    "few_samples": "a split has fewer samples than `shards.count_min`, so each has its own shard",
    "unconditional_writes": "the storage ignores conditional writes, on which concurrent runs rely",
}
"""Every code that a warning may have, and what it means."""

_NAMES = 3
_SAMPLES_PER_CLASS = 5


@dataclass(frozen=True, slots=True)
class Caution:
    """One warning: a code from `CODES`, and a line that says what is the case and what to do."""

    code: str
    message: str


def cautions(plan: Plan) -> tuple[Caution, ...]:
    """All warnings of a plan, in the order of `CODES`."""
    settings = plan.source_state.settings
    found = (
        *_reported(plan),
        *_nothing_expanded(settings, plan),
        *_merged(plan),
        *_uneven(plan),
        *_many_extensions(plan),
        *_unused_entries(plan),
        *_empty_splits(plan),
        *_unseen_classes(settings, plan),
        *_alike_classes(plan),
        *_lone_classes(plan),
        *_empty_features(settings, plan),
        *_empty_masks(settings, plan),
        *_unused_decoders(settings, plan),
        *_large_samples(settings, plan),
        *_few_shards(settings, plan),
        *_few_samples(settings, plan),
        *_unconditional_writes(plan),
    )
    return tuple(Caution(code, _printable(message)) for code, message in found)


def _printable(message: str) -> str:
    """Keys come from the source and must not affect a terminal."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in message)


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


_Found = Iterator[tuple[str, str]]


def _reported(plan: Plan) -> _Found:
    report = plan.source_state.inventory.report
    if report:
        yield (
            "reported_source",
            f"the objects are those of a report of {report.taken:%Y-%m-%d %H:%M} UTC"
            f" ({report.url}): what was added or removed since is not seen",
        )


def _nothing_expanded(settings: Settings, plan: Plan) -> _Found:
    source, inside = settings.dataset.source, plan.source_state.inventory.inside
    if inside is not None and inside.containers:
        return
    if source.archives == "expand":
        yield (
            "nothing_expanded",
            "no object is a tar archive (*.tar): check source.archives and source.include",
        )
    if source.rows is not None:
        yield (
            "nothing_expanded",
            "no object is a table, and each is a part of a sample as it is: check source.rows",
        )


def _merged(plan: Plan) -> _Found:
    """Not of samples that ``samples.join`` puts together: it says which parts belong together."""
    merged = plan.sample_order.statistics.merged
    if merged.samples and plan.source_state.dataset.samples.join is None:
        (key, exts), *_ = merged.examples
        names = " and ".join(f"{key}.{ext}" for ext in exts)
        count = format_count(merged.samples, "sample")
        verb = "has" if merged.samples == 1 else "have"
        yield (
            "merged_samples",
            f"{count} {verb} several parts of one kind, such as {names}: the name up to the"
            " first dot is the sample; rename the files if they are separate samples",
        )


def _uneven(plan: Plan) -> _Found:
    """Only if samples have several parts; otherwise they are just of different kinds."""
    samples, statistics = plan.sample_order.samples, plan.sample_order.statistics
    lacking = [role for role in statistics.roles if role.samples < samples]
    if statistics.most_parts > 1 and lacking:
        named = "; ".join(_lack(role, samples) for role in lacking[:_NAMES])
        more = len(lacking) - _NAMES
        others = f"; and the same for {format_count(more, 'other part')}" if more > 0 else ""
        yield "uneven_samples", f"{named}{others}"


def _lack(role: RoleCount, samples: int) -> str:
    exts = " or ".join(role.exts[:_NAMES])
    without = samples - role.samples
    if without <= role.samples:
        return f"{without:,} of {format_count(samples, 'sample')} {_have(without)} no {exts}"
    return (
        f"only {role.samples:,} of {format_count(samples, 'sample')} {_have(role.samples)} {exts}"
    )


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _many_extensions(plan: Plan) -> _Found:
    if plan.sample_order.statistics.other_parts.objects:
        yield (
            "many_extensions",
            f"more than {MOST_EXTENSIONS:,} different extensions: everything after the first dot of"
            " a name is its extension, so names such as 2024.01.02.jpg all belong to sample 2024",
        )


def _unused_entries(plan: Plan) -> _Found:
    order = plan.sample_order
    if order.unfit_count:
        entries = "entry fits" if order.unfit_count == 1 else "entries fit"
        yield (
            "unused_entries",
            f"{order.unfit_count:,} annotation {entries} no sample, such as {order.unfit[0].key}:"
            " check samples.annotations.key",
        )


def _empty_splits(plan: Plan) -> _Found:
    empty = [name for name, split in plan.sample_order.splits.items() if not split.samples]
    if empty:
        yield "empty_split", f"there are no samples in {_names(empty)}: check splits"


def _unseen_classes(settings: Settings, plan: Plan) -> _Found:
    labels, sample_order = settings.dataset.labels, plan.sample_order
    if labels is None or labels.classes is None:
        return
    counted = zip(sample_order.classes, sample_order.class_samples, strict=True)
    unseen = [name for name, samples in counted if not samples]
    if unseen:
        count = f"{len(unseen):,} of {format_count(len(sample_order.classes), 'class')}"
        yield (
            "unseen_classes",
            f"{count} in labels.classes {_have(len(unseen))} no sample: {_names(unseen)}",
        )


def _alike_classes(plan: Plan) -> _Found:
    seen: dict[str, str] = {}
    alike = []
    for name in plan.sample_order.classes:
        other = seen.setdefault(normalize("NFC", name).strip(), name)
        if other != name:
            alike.append(f"{other!a} and {name!a}")
    if alike:
        yield (
            "alike_classes",
            f"classes that look the same are different ones: {_names(alike)}: rename their samples"
            " if that is not intended",
        )


def _lone_classes(plan: Plan) -> _Found:
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
            "lone_classes",
            f"{len(lone):,} of {format_count(len(order.classes), 'class')} {verb} in one split"
            f" only: {_names(lone)}: check their names if that is not intended",
        )


def _empty_features(settings: Settings, plan: Plan) -> _Found:
    statistics = plan.sample_order.statistics
    options = settings.dataset.shards.options
    if not options.features or statistics.other_parts.objects:
        return
    exts = {part.ext for part in statistics.parts}
    there = FeatureMap(options)
    has_image = any(map(there.is_image, exts))
    empty = [
        name
        for name, feature in options.features.items()
        if (feature.source == "part" and feature.part not in exts)
        or (feature.source == "image" and not has_image)
    ]
    if empty:
        yield (
            "empty_features",
            f"no sample has the part for {_names(empty)}: check shards.features",
        )


def _empty_masks(settings: Settings, plan: Plan) -> _Found:
    transform, statistics = settings.dataset.shards.images, plan.sample_order.statistics
    if transform is None or statistics.other_parts.objects:
        return
    there = {found.name for found in (role(part.ext) for part in statistics.parts) if found.image}
    empty = [name for name in transform.masks if name not in there]
    if empty:
        yield (
            "empty_masks",
            f"no sample has a mask called {_names(empty)}: shards.images.masks has names such as"
            " seg, for seg.png; masks that it does not name are mixed like photographs",
        )


def _unused_decoders(settings: Settings, plan: Plan) -> _Found:
    statistics = plan.sample_order.statistics
    uses = settings.dataset.image_options.decoders
    if not uses or statistics.other_parts.objects:
        return
    used = {use_of(uses, part.ext) for part in statistics.parts}
    unused = [use.ext for use in uses if use not in used]
    if unused:
        yield "unused_decoders", f"no sample has a part {_names(unused)}: check decoding"


def _large_samples(settings: Settings, plan: Plan) -> _Found:
    samples, oversized = (plan.new.samples, plan.new.oversized) if plan.new else (0, 0)
    if 2 * oversized > samples:
        target = format_bytes(settings.dataset.shards.bytes)
        yield (
            "large_samples",
            f"{oversized:,} of {format_count(samples, 'sample')}, larger than shards.bytes"
            f" ({target}), {_have(oversized)} a shard each: raise shards.bytes",
        )


def _few_shards(settings: Settings, plan: Plan) -> _Found:
    wanted = readers(settings.template)
    for name, shards in plan.shards_of_split.items():
        samples = plan.sample_order.splits[name].samples
        if samples and (shards.count < wanted or shards.count == 1):
            count = format_count(shards.count, "shard")
            reason = (
                f"{settings.template_name} has {wanted:,} readers, and each needs one"
                if shards.count < wanted
                else "a loader with 2 workers needs two"
            )
            least = max(wanted, 2)
            advice = f"set shards.count_min: {least}"
            if settings.dataset.shards.samples_per_shard is not None:
                advice = "lower shards.samples_per_shard"
            if samples < least:
                advice = f"it has only {format_count(samples, 'sample')}"
            yield "few_shards", f"{name} has {count}; {reason}: {advice}"


def _few_samples(settings: Settings, plan: Plan) -> _Found:
    least = settings.dataset.shards.count_min or 0
    for name, split in plan.sample_order.splits.items():
        if 0 < split.samples < least:
            count = format_count(split.samples, "sample")
            yield (
                "few_samples",
                f"{name} has {count}, fewer than shards.count_min ({least:,}), so each has a shard"
                " of its own: lower shards.count_min",
            )


def _unconditional_writes(plan: Plan) -> _Found:
    kept = plan.source_state.conditions
    if kept and not kept.kept:
        headers = {"If-None-Match": kept.if_absent, "If-Match": kept.if_match}
        ignored = " and ".join(name for name, is_kept in headers.items() if not is_kept)
        yield (
            "unconditional_writes",
            f"the storage ignores {ignored}: of two runs of this dataset that end at the same"
            " moment, the one with the older listing may win; run one at a time",
        )


def _names(names: list[str]) -> str:
    return format_names(names, _NAMES)
