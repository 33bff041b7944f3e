"""Refuses plans that would fail, before anything is done, and warns of likely mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import pyarrow as pa

from larder.config.models.dataset import Dataset
from larder.config.shape import use_of
from larder.copy.prices import check_cost
from larder.disk import LOOKS, check_names, check_room, folder_bytes, twins
from larder.errors import ConfigError, Failure, printable
from larder.experiments.consumers.determined.template import slots_of
from larder.jobs.results import BatchReport, RefusedError
from larder.pipeline.configs import check_configs
from larder.pipeline.planning.plan import Plan, make_plan
from larder.pipeline.planning.source_state import SourceState
from larder.progress import Progress
from larder.samples.decoders import IMAGES
from larder.samples.image_parts import is_image, role
from larder.samples.labels import CLASS_LOOKS, class_looks, names_among, permuted, whole_numbers
from larder.samples.naming import bad_key_hint
from larder.segments.image_rules import strongest_check
from larder.segments.mirror import mirror_route
from larder.segments.stores import source_of, storage_of
from larder.shards.formats.tfrecord.features import FeatureMap
from larder.source.expand.annotations import file_format
from larder.source.selection import KeyRule
from larder.source.unfit import is_restored
from larder.store import local_path
from larder.units import format_count, format_names
from larder.versions import layout


def checked_plan(state: SourceState, folder: Path, *, progress: Progress) -> Plan:
    """Plan a run, and refuse a plan that must not be executed.

    A RefusedError lists all of its objects or samples: ``config.bad_key``: keys that no sample can
    have, or that the storage cannot hold; ``config.missing_part``: samples that lack a part;
    ``cache.schema``: samples that the cache cannot hold; ``sample.empty``: images of zero bytes.

    Further refusals: ``config.empty_source``, ``config.cost_limit``; ``store.full``: the run would
    write more into a directory than fits; ``config.path``: two splits would be one folder.
    """
    plan = make_plan(state, folder, progress)
    order, dataset = plan.sample_order, plan.source_state.dataset
    statistics, cached = order.statistics, dataset.cache
    if dataset.on_bad_key == "fail":
        joined = dataset.samples.join is not None
        why = (
            "that cannot be parts of samples" if joined else "that WebDataset readers skip or merge"
        )
        bad = order.bad_keys
        _refuse("config.bad_key", bad.shown, bad.count, ("key", why), bad_key_hint(bad.shown))
    if dataset.samples.missing == "refuse":
        hint = "add what is missing, or set samples.missing: skip or keep"
        incomplete = order.incomplete.shown, order.incomplete.count
        _refuse("config.missing_part", *incomplete, ("incomplete sample", ""), hint)
    hint = "rename or exclude them, shorten storage.url, or set mirror: false"
    what = "key", "that the storage cannot hold"
    _refuse("config.bad_key", plan.unfit.failures, plan.unfit.count, what, hint)
    if cached and cached.records == "decoded" and not _decodes_images(dataset):
        failures = tuple(
            Failure(key, "cache.schema", f"its parts {' and '.join(exts)} would become one image")
            for key, exts in statistics.clashing.examples
        )
        hint = "exclude or rename one of them, or set cache.records: encoded"
        what = "sample", "that a cache of decoded records cannot hold"
        _refuse("cache.schema", failures, statistics.clashing.samples, what, hint)
    if strongest_check(dataset) != "none" and dataset.on_bad_sample == "fail":
        empty = statistics.empty_images
        failures = tuple(Failure(key, "sample.empty", "no bytes") for key, _ in empty.examples)
        hint = "restore or exclude them, or set on_bad_sample: skip"
        _refuse("sample.empty", failures, empty.samples, ("image", "of zero bytes"), hint)
    if not order.samples:
        objects = format_count(plan.source_state.inventory.objects, "object")
        kinds = "folder markers, label files or bad keys"
        hint = "check source.url, source.include and source.exclude"
        if order.incomplete.count:
            kinds = "parts of incomplete samples, folder markers, label files or bad keys"
            hint += ", samples.join and samples.annotations"
        message = f"no samples: {objects}, all of them {kinds}"
        raise ConfigError("config.empty_source", message, where=dataset.source.url, hint=hint)
    copies = plan.copies
    check_cost(plan.cost, state.cluster.copy_.max_cost_usd, "cluster.copy")
    _check_room(plan)
    if copies:
        mirror_route(state.dataset, state.cluster, copies).check()
    pinned = state.tag is not None and state.tag.pinned  # then configs are left as they are
    new = state.settings.writes and not (plan.published or pinned)
    splits = plan.delivered_splits
    check_configs(state.settings, plan.version, plan.delivery, splits, writes=new)
    return plan


def _decodes_images(dataset: Dataset) -> bool:
    """Return whether decoders make images of parts unknown to `larder.samples.image_parts.role`."""
    uses = dataset.image_options.decoders
    return any(is_image(use.ext) or use.use in IMAGES for use in uses)


def _check_room(plan: Plan) -> None:
    """Refuse a plan that does not fit the disk, by the sizes that are known.

    Files that an interrupted run has written need no more room.
    """
    state, new = plan.source_state, plan.new
    root = storage_of(state.dataset, state.cluster)
    if not root.features.local_path or plan.published:
        return
    folder = local_path(root, "x").parent
    check_names(folder, state.dataset.split_names)
    copies = plan.copies.bytes if plan.copies else 0
    shards = new.shards.bytes if new and not new.complete and plan.exact else 0

    def written_bytes() -> int:
        unrecorded = folder_bytes(folder / layout.MIRROR_PREFIX)
        unrecorded -= state.inventory.bytes - copies
        packed = folder_bytes(folder / layout.shards_prefix(new.id)) if new and shards else 0
        return min(copies, max(0, unrecorded)) + min(shards, packed)

    if state.settings.writes:
        check_room(folder, copies + shards, written_bytes)


def check_archived(plan: Plan) -> None:
    """Refuse to run a plan that reads archived objects that are not restored."""
    archived, state = plan.archived, plan.source_state
    if not archived.count:
        return
    source = source_of(state.dataset, state.cluster)
    if is_restored(source, [failure.key for failure in archived.failures]):
        return
    hint = "restore them, or exclude them with source.exclude"
    what = "object", "that cannot be read"
    _refuse("object.unreadable", archived.failures, archived.count, what, hint)


def _refuse(
    code: str, failures: Sequence[Failure], count: int, what: tuple[str, str], hint: str
) -> None:
    """Refuse some objects or samples if there are any; ``what`` is a noun and its continuation."""
    if count:
        noun, why = what
        message = f"{format_count(count, noun)} {why}".rstrip() + f": {failures[0].message}"
        raise RefusedError(code, message, hint, BatchReport(failures=tuple(failures), failed=count))


_NAMES = 3


def warnings(plan: Plan) -> list[dict[str, str]]:
    """List all warnings of a plan, in the order of `WARNINGS`: the finding, and its remedy."""
    return [
        {"code": code, "message": printable(message)}
        for code, rule in WARNINGS.items()
        for message in rule(plan)
    ]


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
    """Warn of merged samples, unless ``samples.join`` says which parts belong together."""
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
    """Warn of missing parts only if samples have several; else they are just of different kinds."""
    samples, statistics = plan.sample_order.samples, plan.sample_order.statistics
    lacking = [
        f"only {lack.samples:,} {_have(lack.samples)} {' or '.join(lack.exts[:_NAMES])}"
        for lack in statistics.roles
        if lack.samples < samples
    ]
    if statistics.most_parts > 1 and lacking:
        yield f"of {format_count(samples, 'sample')}, {format_names(lacking, _NAMES)}"


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _unused_entries(plan: Plan) -> Iterator[str]:
    unfit = plan.sample_order.unfit
    if unfit.count:
        entries = "entry fits" if unfit.count == 1 else "entries fit"
        yield (
            f"{unfit.count:,} annotation {entries} no sample, such as {unfit.shown[0].key}:"
            " check samples.annotations.key"
        )


def _empty_splits(plan: Plan) -> Iterator[str]:
    empty = [name for name, split in plan.sample_order.splits.items() if not split.samples]
    if empty:
        yield f"there are no samples in {format_names(empty, _NAMES)}: check splits"


def _two_forms(plan: Plan) -> Iterator[str]:
    statistics = plan.sample_order.statistics
    if statistics.composed and statistics.decomposed:
        yield (
            f"some keys have composed characters, such as {statistics.composed!a}, and others"
            f" decomposed ones, such as {statistics.decomposed!a}: those that look the same are"
            " different samples and classes; rename the files if they belong together"
        )


def _other_form(plan: Plan) -> Iterator[str]:
    state = plan.source_state
    rule = KeyRule([LOOKS(glob) for glob in state.dataset.source.include])
    keys = state.inventory.not_included.keys
    looks = pa.array([LOOKS(key) for key in keys], pa.string())
    for key in compress(keys, rule(looks)):
        yield (
            f"{key!a} is left out, and looks as if source.include matched it: it differs by case"
            " or Unicode form"
        )
        return


def _twin_classes(plan: Plan) -> Iterator[str]:
    found = twins(plan.sample_order.classes, class_looks)
    if pairs := [f"{one!a} and {other!a}" for one, other in found]:
        yield (
            f"the classes {format_names(pairs, _NAMES)} differ by {CLASS_LOOKS} only: rename the"
            " folders or labels if they are one class"
        )


def _mixed_classes(plan: Plan) -> Iterator[str]:
    labels, classes = plan.source_state.dataset.labels, plan.sample_order.classes
    numbers, names = whole_numbers(classes), names_among(classes)
    if labels and labels.classes is None and numbers and names:
        yield (
            f"{format_names(numbers, _NAMES)} are classes of their own beside"
            f" {format_names(names, _NAMES)}: they are no numbers of classes"
        )


def _permuted_classes(plan: Plan) -> Iterator[str]:
    classes = plan.sample_order.classes
    if moved := permuted(classes):
        pairs = [f"{name!a} is number {classes.index(name)}" for name in moved[: _NAMES + 1]]
        yield (
            f"the classes 0 to {len(classes) - 1:,} are not their own numbers:"
            f" {format_names(pairs, _NAMES, total=len(moved))}; see labels.classes"
        )


def _empty_classes(plan: Plan) -> Iterator[str]:
    order = plan.sample_order
    counts = dict(zip(order.classes, order.class_samples, strict=False))
    if gone := [name for name, count in counts.items() if not count]:
        yield f"no sample has the class {format_names(gone, _NAMES)}: check labels and the source"
    for split, samples in order.split_classes.items():
        lacking = zip(order.classes, samples, strict=False)
        names = [name for name, count in lacking if not count and counts[name]]
        if names and order.splits[split].samples:
            yield f"{split} has no sample of the class {format_names(names, _NAMES)}: check splits"


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


def _source_pixels(plan: Plan) -> Iterator[str]:
    dataset = plan.source_state.dataset
    annotations, transform = dataset.samples.annotations, dataset.shards.images
    resized = (transform and transform.resize) or (dataset.cache and dataset.cache.images)
    if not resized or annotations is None or annotations.part is None:
        return
    if any(file_format(annotations, key) == "coco" for key in annotations.files):
        yield (
            f"images are resized, and boxes and outlines in {annotations.part} keep the pixels of"
            " the source: scale them in training by image.width and image.height"
        )


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
    """Return the number of a trial's processes that read shards at once, by its template.

    It is the number of slots times ``hyperparameters.workers`` (or ``num_workers``); each counts as
    1 if it is missing, 0 or not a whole number.
    """
    hyperparameters = _mapping(template.get("hyperparameters"))
    workers = hyperparameters.get("workers", hyperparameters.get("num_workers"))
    if isinstance(workers, Mapping):  # {type: const, val: 8}
        workers = workers.get("val")
    return _count(slots_of(template)) * _count(workers)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 1


def _unconditional_writes(plan: Plan) -> Iterator[str]:
    kept = plan.conditions
    if kept and not kept.kept:
        headers = {"If-None-Match": kept.if_absent, "If-Match": kept.if_match}
        ignored = " and ".join(name for name, is_kept in headers.items() if not is_kept)
        yield (
            f"the storage ignores {ignored}: of two runs of this dataset that end at the same"
            " moment, the one with the older listing may win; run one at a time"
        )


WARNINGS: Mapping[str, Callable[[Plan], Iterator[str]]] = {
    "reported_source": _reported,
    "nothing_expanded": _nothing_expanded,
    "merged_samples": _merged,
    "uneven_samples": _uneven,
    "unused_entries": _unused_entries,
    "empty_split": _empty_splits,
    "empty_class": _empty_classes,
    "twin_classes": _twin_classes,
    "mixed_classes": _mixed_classes,
    "permuted_classes": _permuted_classes,
    "other_form": _other_form,
    "two_forms": _two_forms,
    "unused_parts": _unused_parts,
    "source_pixels": _source_pixels,
    "few_shards": _few_shards,
    "unconditional_writes": _unconditional_writes,
}
"""The rule of each warning, which yields its messages for a plan."""
