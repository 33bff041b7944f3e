"""Identities, and which segments are made again: pure functions and all their version numbers.

- The *inputs digest* is known right after the listing: it covers the dataset's meaningful fields,
  and the keys, sizes and etags of the objects.
- The *segment ID* names a segment before any of it is written: it covers the ordered samples with
  their parts' etags and labels, and the options that shape them.
- The *cache ID* names a cache of a segment.
- The *version ID* covers segments, omitted rows, caches, classes, splits and skipped samples.
- The *content digest* covers the output: for the same files it is the same on every machine, from
  a bucket or a directory.

Each is the sha256 of an explicit list of fields, without those that have their default value. So a
new option with a default, or a new format, changes no existing identity. A default in this module
must never change; tests/golden/identities.json checks that.

Which segments of the previous version a plan keeps is decided in larder/growth/decision.py and
larder/pipeline/planning/growth_plan.py. `changed_option`, `weaker_check` and `faulty_form` are
three of their reasons. The table "What is made again" in docs/design/004-growth.md has every
change, its effect, and why.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from larder.config.models.dataset import Dataset, Shards
from larder.config.shape import (
    MAX_PIXELS,
    BuilderUse,
    DecoderUse,
    FormatOptions,
    ImageOptions,
    ImageShape,
)
from larder.manifest.digest import canonical_json
from larder.manifest.sealed import to_plain
from larder.samples.decoders import resolved, resolved_builder
from larder.units import format_bytes
from larder.versions.documents import CacheFacts, SegmentDocument, Shape, VersionDocument
from larder.versions.index import Shard
from larder.versions.omitted import Omitted

GROUPING_VERSION = 1
"""Version of the rules that make samples of objects: grouping, splits and labels.

After a new version, the next run compares all samples, and packs those that differ.
"""

CACHE_VERSION = 3
"""Version of the format of cache files: a new version builds all caches again.

A shard format has its own ``version`` and ``oldest_kept``; see
`larder.shards.formats.format_interface.ShardFormat`.
"""

_ALL_IN_TRAIN = ["globs", ["train", ["**"]]]

_CHECKS = ("none", "header", "decode")
"""Values of ``validate`` from the weakest to the strongest."""

_Field = tuple[str, Any, Any]
"""Name, value and default."""


def _digest(kind: str, fields: Iterable[_Field]) -> str:
    value = {name: value for name, value, default in fields if value != default}
    return hashlib.sha256(f"larder-{kind}-1\n".encode() + canonical_json(value)).hexdigest()


def inputs_digest(
    dataset: Dataset,
    inventory_digest: str,
    label_files: Mapping[str, str],
    annotations: Sequence[tuple[str, int, str]] = (),
    *,
    oldest_kept: int = 1,
) -> str:
    """Return the inputs digest, 64 hex digits: a run with the digest of its version does nothing.

    It covers the digest of the inventory, the sha256 of each split's label file, and key, size and
    etag of each annotation file. ``oldest_kept`` belongs to the format of the shards.

    Fields that do not shape samples are left out: URLs, regions, mirror, growth, description,
    experiment. The version of the shard format is left out too: it applies to new segments only.
    """
    shards, labels, cache = dataset.shards, dataset.labels, dataset.cache
    decodes = cache is not None and cache.kind == "decoded"
    return _digest(
        "inputs",
        [
            ("name", dataset.name, None),
            ("inventory", inventory_digest, None),
            ("archives", _archives(dataset), None),
            ("rows", _rows(dataset), None),
            ("splits", dataset.split_options.identity, _ALL_IN_TRAIN),
            ("join", _join(dataset), None),
            ("missing", dataset.samples.missing, "refuse"),
            ("labels", labels.source if labels else None, None),
            ("annotations", _annotations(dataset, annotations), None),
            ("label_column", labels.column if labels else None, None),
            ("label_pattern", labels.pattern if labels else None, None),
            ("classes", labels.classes if labels else None, None),
            ("label_files", dict(label_files), {}),
            *_shape_fields(shards, shaped_images(dataset)),
            ("count_min", shards.count_min, None),
            ("validate", dataset.validate_, "header"),
            ("on_bad_key", dataset.on_bad_key, "fail"),
            ("on_bad_sample", dataset.on_bad_sample, "fail"),
            ("cache", cache.kind if cache else None, None),
            ("cache_version", CACHE_VERSION if cache else None, None),
            ("oldest_kept", oldest_kept, 1),
            ("grouping_version", GROUPING_VERSION, 1),
            ("builder", to_plain(cache_builder(dataset)), None),
            ("cache_images", to_plain(cache.image_shape) if cache else None, None),
            ("masks", list(shards.images.masks) if shards.images and decodes else [], []),
        ],
    )


def _shape_fields(shape: Shards | Shape, images: ImageOptions) -> list[_Field]:
    """Return the options of ``shards`` that shape all shards of a segment.

    Add a new one here: inputs digest, segment ID and `changed_option` then have it.
    """
    return [
        ("format", shape.format, "webdataset"),
        ("bytes", shape.bytes, 150_000_000),
        ("samples_per_shard", shape.samples_per_shard, None),
        ("shuffle_seed", shape.shuffle_seed, None),
        ("options", to_plain(shape.options, sparse=True), {}),
        ("images", to_plain(images, sparse=True), {}),
    ]


def changed_option(dataset: Dataset, shape: Shape) -> str:
    """Describe the first option that differs from a segment's options, with its earlier value.

    Options that a build adds are ignored, and so are image checks that do not shape shards. Empty
    if no option differs.
    """
    features, transform = shape.options.features, shape.images.transform
    now = _shape_fields(dataset.shards, ImageOptions(transform=dataset.image_options.transform))
    then = _shape_fields(
        replace(shape, options=FormatOptions(features)),
        ImageOptions(transform=transform.options() if transform else None),
    )
    pairs = zip(now, then, strict=True)
    return next((_shown(name, was) for (name, value, _), (_, was, _) in pairs if value != was), "")


def _shown(option: str, value: Any) -> str:
    name = f"shards.{'features' if option == 'options' else option}"
    if value in (None, {}):
        return f"{name} was not set"
    if isinstance(value, dict):
        return f"{name} was different"
    return f"{name} was {format_bytes(value) if option == 'bytes' else value}"


def weaker_check(dataset: Dataset, segment: SegmentDocument) -> str:
    """Describe why the samples of a segment have to be checked again; empty if they need not."""
    images, most = segment.shape.images, dataset.images.max_pixels
    if _CHECKS.index(segment.validate) < _CHECKS.index(dataset.validate_):
        return f"validate was {segment.validate}"
    if not set(shaped_images(dataset).decoders) <= set(images.decoders):
        return "decoding was different"
    if images.max_pixels > most and dataset.validate_ != "none":
        return f"images.max_pixels was {images.max_pixels:,}"
    return ""


def faulty_form(shape: Shape, oldest_kept: int) -> str:
    """Describe why the shards of a segment cannot stay in their form; empty if they can."""
    if shape.format_version >= oldest_kept:
        return ""
    return f"{shape.format} shards before version {oldest_kept} of the format have a fault"


def is_first_build(
    version: VersionDocument,
    segment: SegmentDocument,
    bad: int,
    targets: Mapping[str, int],
    format_version: int,
) -> bool:
    """Return whether a version without changed samples equals the result of a first build.

    If not, a compaction makes it again. ``segment`` is its first segment. ``bad`` is the number of
    samples that are left out as before. ``targets`` is the size of a split's shards if it is not
    ``shards.bytes``. ``format_version`` is the current version of the format.
    """
    extra = [file for file in version.files_of("skipped") if file not in segment.files]
    return (
        len(version.segments) == 1
        and not version.omitted
        and not extra
        and segment.skipped == bad
        and segment.shape.format_version >= format_version
        and not any(split.first_shard for split in segment.splits.values())
        and dict(segment.shape.split_bytes) == dict(targets)
    )


def _archives(dataset: Dataset) -> list[Any] | None:
    """Return the options that select members of archives, which the inventory does not list."""
    source = dataset.source
    if source.archives == "keep":
        return None
    return [source.archives, list(source.include), list(source.exclude)]


def _rows(dataset: Dataset) -> dict[str, Any] | None:
    """Return the options that select rows of tables, and name their keys."""
    rows = dataset.source.rows
    return rows.model_dump(mode="json", exclude_defaults=True) if rows else None


def _join(dataset: Dataset) -> list[Any] | None:
    """Return the patterns in their order, which matters, with their names if they have names."""
    join = dataset.samples.join
    if join is None:
        return None
    return [list(pair) for pair in join.items()] if isinstance(join, dict) else list(join)


def _annotations(dataset: Dataset, files: Sequence[tuple[str, int, str]]) -> list[Any] | None:
    """Return the options for annotation files, and the current state of these files."""
    options = dataset.samples.annotations
    if options is None:
        return None
    columns = sorted([ext, column] for ext, column in options.columns.items())
    shape = [options.format, options.key, options.part, options.many, columns]
    delimiter = [] if options.delimiter is None else [options.delimiter]
    return [*shape, [list(file) for file in files], *delimiter]


def split_rule(dataset: Dataset) -> str:
    """Return the rule of splits that depend on all samples; empty for other splits.

    Later versions with the same rule keep the splits of their samples.
    """
    splits = dataset.split_options
    return canonical_json(splits.identity).decode() if splits.over_classes else ""


def image_check(dataset: Dataset) -> str:
    """Describe how images are checked. If the description changes, bad samples are tried again."""
    most, uses = dataset.images.max_pixels, shaped_images(dataset).decoders
    check = dataset.validate_ if most == MAX_PIXELS else f"{dataset.validate_} {most}"
    return f"{check} {canonical_json(to_plain(uses, sparse=True)).decode()}" if uses else check


def shaped_images(dataset: Dataset) -> ImageOptions:
    """Return the limits for images and decoded parts, with the versions of the decoders."""
    options = dataset.image_options
    return replace(options, decoders=resolved(options.decoders))


def segment_id(
    *,
    dataset: str,
    samples: str,
    shape: Shape,
    validate: str,
    on_bad_sample: str,
    first_shards: Mapping[str, int],
) -> str:
    """Return the segment ID, 32 hex digits.

    ``samples`` is the digest of the ordered samples, their labels and their parts' etags. The names
    of shards begin with the name of the dataset, and with ``first_shards``, the number of the first
    shard by split.
    """
    first_shards = {split: first for split, first in first_shards.items() if first}
    return _digest(
        "segment",
        [
            ("name", dataset, None),
            ("samples", samples, None),
            *_shape_fields(shape, shape.images),
            ("format_version", shape.format_version, 1),
            ("split_bytes", dict(shape.split_bytes), {}),
            ("validate", validate, "header"),
            ("on_bad_sample", on_bad_sample, "fail"),
            ("first_shards", first_shards, {}),
            ("library", shape.library, ""),
        ],
    )[:32]


def cache_id(
    segment: str,
    kind: str,
    decoders: tuple[DecoderUse, ...] = (),
    builder: BuilderUse | None = None,
    images: ImageShape | None = None,
    *,
    version: int = CACHE_VERSION,
) -> str:
    """Return the cache ID, 32 hex digits."""
    fields: list[_Field] = [
        ("segment", segment, None),
        ("records", kind, "encoded"),
        ("decoders", to_plain(decoders, sparse=True), []),
        ("builder", to_plain(builder), None),
        ("images", to_plain(images), None),
        ("version", version, 1),
    ]
    return _digest("cache", fields)[:32]


def cache_decoders(dataset: Dataset) -> tuple[DecoderUse, ...]:
    """Return the decoders of a decoded cache for parts that are not images; else none."""
    decodes = dataset.cache is not None and dataset.cache.records == "decoded"
    return shaped_images(dataset).uses if decodes else ()


def cache_builder(dataset: Dataset) -> BuilderUse | None:
    """Return the user's function that builds the dataset's cache, if it has one."""
    use = dataset.cache.use if dataset.cache else None
    return resolved_builder(use) if use else None


def dataset_cache_id(dataset: Dataset, segment: str) -> str | None:
    """Return the ID of a segment's cache for this dataset; None if the dataset has no cache."""
    cache = dataset.cache
    if cache is None:
        return None
    made_by = cache_decoders(dataset), cache_builder(dataset), cache.image_shape
    return cache_id(segment, cache.kind, *made_by)


def version_id(
    dataset: str,
    segments: Sequence[tuple[str, str | None]],
    omitted: Mapping[tuple[str, str], Omitted],
    *,
    classes: Sequence[str],
    split_names: Iterable[str],
    skipped: str | None = None,
    rule: str = "",
) -> str:
    """Return the version ID, 32 hex digits.

    Classes are in the order of their numbers; splits include empty ones. ``skipped`` is the digest
    of the bad samples that earlier versions left out; the bad samples of a new segment follow from
    its ID.
    """
    rows = [
        [segment, split, hashlib.sha256(omission.ranges.astype("<i8").tobytes()).hexdigest()]
        for (segment, split), omission in sorted(omitted.items())
        if omission.count
    ]
    return _digest(
        "version",
        [
            ("name", dataset, None),
            ("segments", [segment for segment, _ in segments], None),
            ("omitted", rows, []),
            ("caches", [cache for _, cache in segments], [None] * len(segments)),
            ("classes", list(classes), []),
            ("splits", sorted(split_names), ["train"]),
            ("skipped", skipped, None),
            ("split_rule", rule, ""),
        ],
    )[:32]


def content_digest(
    shards: Iterable[Shard], classes: Sequence[str], cache: CacheFacts | None
) -> str:
    """Return the content digest, 64 hex digits, of the listed shards' files and the cache's
    records.
    """
    rows = [
        [shard.split, file.name, file.bytes, file.sha256, *_omitted(shard, number)]
        for shard in shards
        for number, file in enumerate(shard.files)
    ]
    hasher = hashlib.sha256(b"larder-content-1\n")
    for row in sorted(rows, key=lambda row: row[:2]):
        hasher.update(canonical_json(row) + b"\n")
    hasher.update(canonical_json(["classes", list(classes)]) + b"\n")
    if cache:
        files = {
            split: [file.digest for file in cache_files]
            for split, cache_files in cache.splits.items()
        }
        hasher.update(canonical_json(["cache", cache.kind, files]) + b"\n")
    return hasher.hexdigest()


def _omitted(shard: Shard, file: int) -> list[Any]:
    """Return the omitted rows, for the first file of a shard that has some."""
    return [list(map(list, shard.omitted))] if shard.omitted and not file else []
