"""The contents of dataset and cluster files: frozen models that refuse unknown keys."""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from larder.config.base import Model
from larder.config.copying import Copy, Skyplane
from larder.config.decoders import decoder_uses, parse_decoder
from larder.config.fields import (
    AutoFlag,
    Bytes,
    Ext,
    FeatureName,
    FeatureText,
    Flag,
    Globs,
    Name,
    Number,
    OrNull,
    PartName,
    PartPattern,
    RefusedError,
    SplitName,
    Text,
    Texts,
    Whole,
    listed,
)
from larder.config.formats import DEFAULTS, FormatOptions, parse_feature
from larder.config.fractions import hash_form
from larder.config.images import MAX_PIXELS, ImageOptions, Transform
from larder.config.part_patterns import part_pattern
from larder.config.stores import (
    AnyLocation,
    AnySource,
    Columns,
    GcsLocation,
    GcsSource,
    LocalLocation,
    LocalSource,
    Location,
    Report,
    S3Location,
    S3Source,
)

__all__ = [
    "Annotations",
    "AnyLocation",
    "AnySource",
    "Cache",
    "Cluster",
    "Columns",
    "Consumer",
    "Copy",
    "Dataset",
    "Experiment",
    "GcsLocation",
    "GcsSource",
    "Growth",
    "HashSplits",
    "ImageTransform",
    "Images",
    "Labels",
    "LocalLocation",
    "LocalSource",
    "Location",
    "Missing",
    "Model",
    "Mount",
    "Nodes",
    "Report",
    "Runner",
    "S3Location",
    "S3Source",
    "Samples",
    "Shards",
    "Skyplane",
]

GLOBS_TAG, HASH_TAG = "(globs)", "(hash)"
"""The kinds of splits in the locations of pydantic's errors: cannot be keys of a file."""

_SHOWN = 5
_MOST_PATTERNS = 32


class HashSplits(Model):
    """Splits by a seeded hash of the sample key: stable as the dataset grows."""

    by: Literal["hash"] = Field(description="hash: by a seeded hash of the sample key")
    seed: Whole = Field(description="seed of the hash: any whole number")
    fractions: dict[SplitName, Number] = Field(
        min_length=1, description="fraction of each split, above 0; fractions add up to 1"
    )
    group: Text | None = Field(
        None, description="regular expression; samples with the same first group stay together"
    )
    stratify: Flag = Field(
        False, description="divide each class by the fractions, instead of all samples together"
    )

    @field_validator("fractions")
    @classmethod
    def _add_up(cls, value: dict[str, float]) -> dict[str, float]:
        if any(fraction <= 0 for fraction in value.values()) or abs(sum(value.values()) - 1) > 1e-9:
            raise RefusedError("fractions must be above 0 and add up to 1")
        return value

    @field_validator("group")
    @classmethod
    def _pattern(cls, value: str | None) -> str | None:
        return _with_group(value, "patient-(\\d+)")


def _with_group(value: str | None, example: str) -> str | None:
    """A regular expression with a group; the example is one."""
    if value is not None:
        try:
            groups = re.compile(value).groups
        except (re.error, OverflowError, RecursionError) as error:
            raise RefusedError("not a regular expression", detail=str(error)) from None
        if groups < 1:
            raise RefusedError(f"the pattern needs a group, as in {example}")
    return value


class Labels(Model):
    """Where the label of a sample comes from."""

    source: Literal["folder", "pattern", "column"] = Field(
        "folder",
        alias="from",
        description="folder: the immediate parent folder is the class; pattern: the first group of "
        "labels.pattern is; column: a column of the annotations or rows has it",
    )
    pattern: Text | None = Field(
        None, description="from: pattern: regular expression; its first group in the sample key"
    )
    column: Text | None = Field(
        None,
        description="from: column: the column of samples.annotations or source.rows with it",
    )
    files: dict[SplitName, Text] = Field(
        {}, description="by split: key in the source of a file with lines NAME CLASS"
    )
    classes: Texts | None = Field(
        None, description="the classes in order; null: all classes found, sorted by bytes"
    )

    @field_validator("classes")
    @classmethod
    def _once(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        twice = next((name for name, count in Counter(value or ()).items() if count > 1), None)
        if twice is not None:
            message, detail = "duplicate class", repr(twice)
            raise RefusedError(message, code="config.label", detail=detail)
        return value

    @field_validator("pattern")
    @classmethod
    def _pattern(cls, value: str | None) -> str | None:
        return _with_group(value, "([a-z]+)_\\d+$")

    @model_validator(mode="before")
    @classmethod
    def _inferred(cls, value: Any) -> Any:
        """A pattern or a column says where labels come from."""
        if isinstance(value, dict) and "from" not in value:
            for name in ("pattern", "column"):
                if value.get(name) is not None:
                    return {**value, "from": name}
        return value

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = {"pattern": self.pattern, "column": self.column}
        for name, value in given.items():
            if self.source == name and value is None:
                raise RefusedError(f"labels.from: {name} needs labels.{name}")
            if self.source != name and value is not None:
                hint = f"set labels.from: {name}, or remove labels.{name}"
                raise RefusedError(f"labels.{name} is given, but not used", hint=hint)
        return self


Missing = Literal["refuse", "skip", "keep"]
"""What to do about a sample that lacks a part."""


class Annotations(Model):
    """Files with entries for many samples."""

    files: Annotated[
        tuple[Annotated[Text, Field(min_length=1)], ...],
        BeforeValidator(listed, json_schema_input_type=str | list[str]),
        Field(min_length=1, strict=False),
    ] = Field(description="keys in the source: one or a list")
    format: Literal["auto", "coco", "csv", "jsonl", "parquet"] = Field(
        "auto", description="auto: by the name; .json is coco"
    )
    key: Text = Field(
        "file_name",
        min_length=1,
        description="column with what an entry is of: the key of an object, its end, or the sample "
        "key",
    )
    part: Ext | None = Field(
        "json", description="the part that an entry becomes, as JSON; null: none"
    )
    columns: dict[Ext, Text] = Field(
        {}, description="further parts: the column that each is made of"
    )
    many: Flag = Field(
        False, description="whether a sample may have several entries; its part is a list of them"
    )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.part in self.columns:
            raise RefusedError(f"samples.annotations.columns: {self.part} is the part of the entry")
        if len(set(self.files)) < len(self.files):
            raise RefusedError("samples.annotations.files has a file twice")
        return self


class Samples(Model):
    """What belongs together, if not the objects with the same name up to its first dot."""

    join: Annotated[
        dict[PartName, PartPattern]
        | Annotated[tuple[PartPattern, ...], Field(strict=False)]
        | None,
        OrNull,
    ] = Field(
        None,
        description="patterns with one name in braces, such as {image: 'images/{id}.jpg', mask: "
        "'masks/{id}.png'}: objects with the same text in its place are one sample",
    )
    missing: Missing = Field(
        "refuse",
        description="what to do about a sample without a part of each pattern or without an "
        "annotation, and about an annotation without a sample: refuse, skip (leave it out and list "
        "it) or keep",
    )
    annotations: Annotations | None = Field(
        None, description="files with entries for many samples; null: none"
    )

    @field_validator("join")
    @classmethod
    def _one_placeholder(cls, value: Any) -> Any:
        if value is not None:
            texts = list(value.values() if isinstance(value, dict) else value)
            if not 1 <= len(texts) <= _MOST_PATTERNS:
                raise RefusedError(f"samples.join needs 1 to {_MOST_PATTERNS} patterns")
            if len({part_pattern(text).placeholder for text in texts}) > 1:
                raise RefusedError("all patterns of samples.join need the same name in braces")
            if len(set(texts)) < len(texts):
                raise RefusedError("samples.join has a pattern twice")
        return value


class ImageTransform(Model):
    """How images are resized and encoded again before they go into shards."""

    resize: Annotated[Whole | None, OrNull] = Field(
        None, ge=1, le=65_535, description="length of the shorter side in pixels; null: unchanged"
    )
    enlarge: Flag = Field(False, description="whether smaller images become larger")
    format: Literal["keep", "jpeg", "png"] = Field(
        "keep", description="keep: a JPEG remains a JPEG, a PNG a PNG; jpeg, png: whatever it was"
    )
    quality: Whole = Field(90, ge=1, le=100, description="quality of JPEGs, 1 to 100")
    masks: Texts = Field(
        (),
        description="names of parts whose pixels are numbers, such as seg for seg.png: resized "
        "without mixing pixels, and stored as PNG",
    )
    mean_bytes: Annotated[Bytes | None, OrNull] = Field(
        None, ge=1, description="expected mean size of a stored image; null: estimated"
    )

    @property
    def options(self) -> Transform:
        """The same as part of the shape of a segment, without the libraries."""
        return Transform(**self.model_dump())


class Shards(Model):
    """The container files that training reads."""

    format: Text = Field(
        "webdataset", description="format of the shards: one of those in the reference"
    )
    bytes: Bytes = Field(
        150_000_000, ge=1, description="target size of a shard: bytes, or a string such as 150 MB"
    )
    count_min: Annotated[Whole | None, OrNull] = Field(
        None,
        ge=1,
        le=100_000,
        description="minimum number of shards of a split, 1 to 100,000; null: no minimum",
    )
    samples_per_shard: Annotated[Whole | None, OrNull] = Field(
        None,
        ge=1,
        le=1_000_000_000,
        description="samples of a shard, instead of bytes; null: as many as give it that size",
    )
    shuffle_seed: Annotated[Whole | None, OrNull] = Field(
        None, description="seed of a global shuffle, a whole number; null keeps key order"
    )
    images: ImageTransform | None = Field(
        None, description="how images are resized and encoded again; null: stored as they are"
    )

    features: dict[FeatureName, FeatureText] | None = Field(
        None,
        description="for tfrecord: by name, what each feature is made of: image, label, class, key "
        "or the extension of a part, such as .jpg; after a part or label its kind: bytes, int64 "
        "or float; null: image/encoded, image/class/label and image/filename",
    )

    @property
    def options(self) -> FormatOptions:
        """What a format is made from; that of a segment may have more."""
        if self.features is None:
            return DEFAULTS
        return FormatOptions({name: parse_feature(text) for name, text in self.features.items()})

    @model_validator(mode="after")
    def _of_format(self) -> Self:
        if self.features is not None and self.format != "tfrecord":
            hint = "set shards.format: tfrecord, or leave features out"
            raise RefusedError("features: only records of tfrecord have features", hint=hint)
        if self.images is not None and self.format == "records":
            message = "images: records have equal sizes, and images get theirs as they are encoded"
            raise RefusedError(message, hint="choose another format, or leave images out")
        return self

    @field_validator("format", mode="before")
    @classmethod
    def _known(cls, value: Any, info: ValidationInfo) -> Any:
        formats = (info.context or {}).get("formats")
        known = sorted(formats) if formats else [value]
        if value not in known:
            *first, last = map(repr, known)
            expected = f"{', '.join(first)} or {last}" if first else last
            raise PydanticKnownError("literal_error", {"expected": expected})
        return value

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        if self.samples_per_shard is not None:
            for other in ("bytes", "count_min"):
                if other in self.model_fields_set and getattr(self, other) is not None:
                    hint = f"remove samples_per_shard or {other}"
                    raise RefusedError(
                        f"samples_per_shard and {other} exclude each other", hint=hint
                    )
        elif self.format == "batches":
            hint = "set samples_per_shard to the number of samples of a batch"
            raise RefusedError("the format batches needs samples_per_shard", hint=hint)
        return self


class Images(Model):
    """What images a dataset may have."""

    max_pixels: Whole = Field(
        MAX_PIXELS,
        ge=1,
        le=10**12,
        description="maximum number of pixels of an image; a larger one is a bad sample",
    )


class Cache(Model):
    """The LMDB cache."""

    records: Literal["encoded", "decoded"] = Field(
        "encoded",
        description="encoded: the original bytes; decoded: images, and what decoding names, as "
        "arrays",
    )
    same_size: Flag = Field(
        False, description="whether decoded images must all have the same height and width"
    )


class Growth(Model):
    """What a run does about a dataset that has changed since its previous version."""

    mode: Literal["append", "rebuild"] = Field(
        "append",
        description="append: new samples go into a new segment; rebuild: every change packs all "
        "samples into one segment",
    )
    removals: Literal["repack", "omit"] = Field(
        "repack",
        description="repack: the other samples of a shard that loses one go into a new shard; "
        "omit: they stay, and only Larder's readers leave the removed sample out",
    )


class Experiment(Model):
    """The experiment config to emit."""

    template: Text | None = Field(
        None, description="file in configs/experiments; null: default.yaml"
    )
    delivery: Literal["auto", "bind_mount", "bucket"] = Field(
        "auto", description="how training reaches the data"
    )


def _everything() -> dict[str, tuple[str, ...]]:
    return {"train": ("**",)}


def _kind_of_splits(value: Any) -> str:
    """``by: hash``, or fractions by split, is a seeded hash; splits may have these names too."""
    if isinstance(value, dict):
        hashed = value.get("by") == "hash" or isinstance(value.get("fractions"), dict)
        return HASH_TAG if hashed else GLOBS_TAG
    return HASH_TAG if isinstance(value, HashSplits) else GLOBS_TAG


class Dataset(Model):
    """A dataset: what it is, where it lives and how it is shaped."""

    name: Name = Field(description="name of the dataset: that of the file; may be left out")
    description: Text = Field("", description="free text")
    source: AnySource = Field(description="where the data lives")
    splits: Annotated[
        Annotated[dict[SplitName, Globs], Tag(GLOBS_TAG)] | Annotated[HashSplits, Tag(HASH_TAG)],
        Discriminator(_kind_of_splits),
    ] = Field(
        default_factory=_everything,
        description="globs by split, first match wins, such as {train: 'train/**'}; or a seeded "
        "hash: {by: hash, seed: 7, fractions: {train: 0.9, validation: 0.1}}",
    )
    samples: Samples = Field(Samples(), description="what belongs together")
    labels: Labels | None = Field(
        None, description="where the label of a sample comes from; null: no labels"
    )
    mirror: AutoFlag = Field(
        "auto",
        description="copy the source's objects to the storage first; auto: where that pays",
    )
    shards: Shards = Field(Shards(), description="the container files that training reads")
    images: Images = Field(Images(), description="what images may be like")
    validate_: Literal["none", "header", "decode"] = Field(
        "header", alias="validate", description="how images are checked while shards are written"
    )
    decoding: dict[Ext, Text] = Field(
        {},
        description="by extension, what decodes parts: bytes, image, npy, text, wav, or a function "
        "of your own, module:function; after it the shape that arrays must have, as in npy "
        "shape=80,*, and parameters of the function, as in module:function rate=16000",
    )
    on_bad_key: Literal["fail", "skip"] = Field(
        "fail",
        description="what to do about a key that WebDataset readers would skip or merge, and about "
        "a path in a directory that cannot be listed",
    )
    on_bad_sample: Literal["fail", "skip"] = Field(
        "fail", description="what to do about an image or other part that cannot be decoded"
    )
    cache: Cache | None = Field(None, description="the LMDB cache; null: no cache")
    growth: Growth = Field(Growth(), description="what a run does about changes")
    experiment: Experiment = Field(Experiment(), description="the experiment config to emit")

    @field_validator("decoding")
    @classmethod
    def _parsed(cls, lines: dict[str, str]) -> dict[str, str]:
        for ext, text in lines.items():
            try:
                parse_decoder(ext, text)
            except ValueError as error:
                raise RefusedError(f"decoding.{ext}: {error}") from None
        return lines

    @field_validator("splits", mode="before")
    @classmethod
    def _not_fractions(cls, value: Any) -> Any:
        hint = hash_form(value)
        if hint:
            raise RefusedError("numbers are fractions, which need a seed", hint=hint)
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if not isinstance(self.splits, HashSplits) and not self.splits:
            raise RefusedError("splits: at least one split is required")
        if self.labels:
            names = set(self.split_names)
            unknown = [repr(split) for split in self.labels.files if split not in names]
            if unknown:
                more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
                listed = ", ".join(unknown[:_SHOWN])
                raise RefusedError(f"labels.files: there is no split {listed}{more}")
            tables = (self.samples.annotations, self.source.rows)
            if self.labels.source == "column" and tables == (None, None):
                hint = "name the file in samples.annotations.files, or set source.rows"
                raise RefusedError("labels.column is a column of a table", hint=hint)
        self._check_stratified()
        of_labels = [
            name
            for name, feature in (self.shards.options.features or {}).items()
            if feature.source in ("label", "class")
        ]
        if of_labels and not self.labels:
            message = f"shards.features: feature {of_labels[0]!r} needs labels"
            raise RefusedError(message, hint="set labels, or leave the feature out")
        if self.mirror is True and self.source.expands:
            hint = "leave mirror out: shards are made from the source"
            raise RefusedError("mirror: members of archives and rows are not mirrored", hint=hint)
        if self.cache and self.cache.records == "decoded" and self.validate_ != "decode":
            hint = "set validate: decode, or cache.records: encoded"
            raise RefusedError("cache.records: decoded needs images that can be decoded", hint=hint)
        if self.decoding and self.validate_ != "decode":
            hint = "set validate: decode, or remove decoding"
            raise RefusedError("decoding: parts are decoded while they are checked", hint=hint)
        if self.cache and self.cache.same_size and self.cache.records != "decoded":
            hint = "set cache.records: decoded, or remove it"
            raise RefusedError("cache.same_size is about decoded images", hint=hint)
        return self

    def _check_stratified(self) -> None:
        if not isinstance(self.splits, HashSplits) or not self.splits.stratify:
            return
        if self.labels is None:
            hint = "add labels, or remove splits.stratify"
            raise RefusedError("splits.stratify divides classes, which need labels", hint=hint)
        files = self.labels.files
        if files and (files.keys() != set(self.split_names) or len(set(files.values())) > 1):
            message = "splits.stratify needs the labels before there are splits"
            raise RefusedError(message, hint="name one file for all splits in labels.files")

    @property
    def image_options(self) -> ImageOptions:
        """What images a segment may have; versions of libraries and decoders are not known here."""
        images = self.shards.images
        transform = images.options if images else None
        return ImageOptions(self.images.max_pixels, transform, decoder_uses(self.decoding))

    @property
    def split_names(self) -> tuple[str, ...]:
        """The splits in the order of the file."""
        return tuple(self.splits.fractions if isinstance(self.splits, HashSplits) else self.splits)


class Mount(Model):
    """A directory that exists on every node, and where training containers see it."""

    host_path: Text = Field(description="absolute path on the node")
    container_path: Text = Field(description="absolute path in the container")
    read_only: Flag = Field(True, description="whether the mount is read-only for containers")


class Nodes(Model):
    """The machines that train."""

    disk_bytes: Annotated[Annotated[Bytes, Field(ge=0)] | None, OrNull] = Field(
        None, description="disk size of a node: bytes, or a string such as 500 GB; null: unknown"
    )
    mounts: Annotated[tuple[Mount, ...], Field(strict=False)] = Field(
        (), description="directories that exist on every node, and where containers see them"
    )


class Consumer(Model):
    """The system that the emitted config is for."""

    kind: Literal["determined"] = Field("determined", description="the system")
    release: str = Field(
        "0.38",
        pattern=r"^[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,4})?$",
        description='its release, in quotes, such as "0.38"',
    )


class Runner(Model):
    """What runs the batches."""

    kind: Literal["local"] = Field("local", description="what runs the batches: this machine")
    workers: Annotated[Annotated[Whole, Field(ge=1, le=1024)] | None, OrNull] = Field(
        None, description="maximum number of concurrent batches, 1 to 1024; null: one per core"
    )
    batch_bytes: Bytes = Field(
        1_000_000_000,
        ge=1,
        description="size of a batch (a task run): bytes, or a string such as 1 GB",
    )


class Cluster(Model):
    """Where training runs."""

    name: Name = Field(description="name of the cluster: that of the file; may be left out")
    description: Text = Field("", description="free text")
    storage: AnyLocation = Field(description="where Larder writes and training reads")
    nodes: Nodes = Field(Nodes(), description="the machines that train")
    consumer: Consumer = Field(Consumer(), description="the system that the config is for")
    copy_: Copy = Field(Copy(), alias="copy", description="how objects are copied")
    runner: Runner = Field(Runner(), description="what runs the batches")
