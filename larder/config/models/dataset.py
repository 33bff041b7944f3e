"""The contents of dataset files: description, source and shape of the data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from larder.config.models.field_types import (
    AutoFlag,
    Bytes,
    Ext,
    FeatureName,
    Flag,
    FunctionName,
    Globs,
    Model,
    Name,
    Number,
    OrNull,
    RuleError,
    Scalar,
    SplitName,
    Text,
    Texts,
    Whole,
    accepted_by,
    grouping_pattern,
)
from larder.config.models.joins import Samples
from larder.config.models.locations import Source
from larder.config.shape import (
    DEFAULTS,
    MAX_PIXELS,
    BuilderUse,
    FormatOptions,
    ImageOptions,
    ImageShape,
    Transform,
    builder_use,
    decoder_uses,
    parse_decoder,
    parse_feature,
)
from larder.units import format_names

_FeatureText = Annotated[Text, accepted_by(parse_feature)]
"""Source and type of a feature, such as ``.weight.txt float``."""

GLOBS_TAG, HASH_TAG = "(globs)", "(hash)"
"""The kinds of splits in the locations of pydantic's errors: cannot be keys of a file."""


@dataclass(frozen=True, slots=True)
class GlobSplits:
    """Splits by globs on object keys; the first split with a matching glob wins."""

    globs: Mapping[str, Sequence[str]]

    rule: ClassVar = "globs"
    """Key of the rule in `larder.samples.sample_order.SPLIT_RULES`."""

    over_classes: ClassVar = False
    """Whether the split of a sample follows from all samples of its class, not from its keys."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.globs)

    @property
    def identity(self) -> list[Any]:
        """Part of identities; must not change."""
        return ["globs", *([name, list(globs)] for name, globs in self.globs.items())]


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

    @property
    def rule(self) -> str:
        """Key of the rule in `larder.samples.sample_order.SPLIT_RULES`."""
        return "strata" if self.stratify else "hash"

    @property
    def over_classes(self) -> bool:
        """See `GlobSplits.over_classes`."""
        return self.stratify

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.fractions)

    @property
    def identity(self) -> list[Any]:
        """Part of identities; must not change."""
        fractions = [list(pair) for pair in self.fractions.items()]
        return ["hash", self.seed, fractions, self.group, *(["stratify"] if self.stratify else [])]

    @field_validator("fractions")
    @classmethod
    def _add_up(cls, value: dict[str, float]) -> dict[str, float]:
        if any(fraction <= 0 for fraction in value.values()) or abs(sum(value.values()) - 1) > 1e-9:
            raise RuleError("fractions must be above 0 and add up to 1")
        return value

    @field_validator("group")
    @classmethod
    def _pattern(cls, value: str | None) -> str | None:
        return grouping_pattern(value, "patient-(\\d+)")


def kind_of_splits(value: Any) -> str:
    """``by: hash``, or fractions by split, is a seeded hash; splits may have these names too."""
    if isinstance(value, dict):
        hashed = value.get("by") == "hash" or isinstance(value.get("fractions"), dict)
        return HASH_TAG if hashed else GLOBS_TAG
    return HASH_TAG if isinstance(value, HashSplits) else GLOBS_TAG


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
        None, description="from: column: the column of samples.annotations or source.rows with it"
    )
    files: dict[SplitName, Text] = Field(
        {}, description="by split: key in the source of a file with lines NAME CLASS"
    )
    classes: Texts | None = Field(
        None,
        description="the classes in the order of their numbers; null: all that occur, whole "
        "numbers in numeric order, names in the order of their bytes",
    )

    @field_validator("classes")
    @classmethod
    def _once(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        twice = next((name for name, count in Counter(value or ()).items() if count > 1), None)
        if twice is not None:
            message, detail = "duplicate class", repr(twice)
            raise RuleError(message, code="config.label", detail=detail)
        return value

    @field_validator("pattern")
    @classmethod
    def _pattern(cls, value: str | None) -> str | None:
        return grouping_pattern(value, "([a-z]+)_\\d+$")

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
        for name, value in (("pattern", self.pattern), ("column", self.column)):
            if self.source == name and value is None:
                raise RuleError(f"{name} needs labels.{name}", key="from")
            if self.source != name and value is not None:
                hint = f"set labels.from: {name}, or remove labels.{name}"
                raise RuleError("not used", key=name, hint=hint)
        return self


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

    @property
    def options(self) -> Transform:
        """Transform in the shape of a segment, without versions of libraries."""
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

    features: dict[FeatureName, _FeatureText] | None = Field(
        None,
        description="for tfrecord: by name, what each feature is made of: image, label, class, key "
        "or the extension of a part, such as .jpg; after a part or label its kind: bytes, int64 "
        "or float; null: image/encoded, image/class/label and image/filename",
    )

    @property
    def options(self) -> FormatOptions:
        """Configured options of a format; a segment may have more options."""
        if self.features is None:
            return DEFAULTS
        return FormatOptions({name: parse_feature(text) for name, text in self.features.items()})

    @model_validator(mode="after")
    def _of_format(self) -> Self:
        if self.features is not None and self.format != "tfrecord":
            hint = "set shards.format: tfrecord, or leave features out"
            raise RuleError("only tfrecord has them", key="features", hint=hint)
        if self.images is not None and self.format == "records":
            message = "records have equal sizes, and images get theirs as they are encoded"
            hint = "choose another format, or leave images out"
            raise RuleError(message, key="images", hint=hint)
        return self

    @field_validator("format", mode="before")
    @classmethod
    def _known(cls, value: Any, info: ValidationInfo) -> Any:
        formats = (info.context or {}).get("formats")
        if formats and isinstance(value, str) and value not in formats:
            expected = ", ".join(map(repr, sorted(formats)))
            raise PydanticKnownError("literal_error", {"expected": expected})
        return value

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        if self.samples_per_shard is not None:
            for other in ("bytes", "count_min"):
                if other in self.model_fields_set and getattr(self, other) is not None:
                    hint = f"remove one of them, such as with --set shards.{other}="
                    message = f"cannot be combined with {other}"
                    raise RuleError(message, key="samples_per_shard", hint=hint)
        elif self.format == "batches":
            hint = "set samples_per_shard to the number of samples of a batch"
            raise RuleError("batches needs samples_per_shard", key="format", hint=hint)
        return self


_SHOWN = 5

ImageSide = Annotated[Whole, Field(ge=1, le=16_384)]


class ImageLimits(Model):
    """What images a dataset may have."""

    max_pixels: Whole = Field(
        MAX_PIXELS,
        ge=1,
        le=10**12,
        description="maximum number of pixels of an image; a larger one is a bad sample",
    )


class CacheImages(Model):
    """What all images of a decoded cache become."""

    resize: Annotated[tuple[ImageSide, ImageSide], Field(strict=False)] = Field(
        description="height and width: the middle of the image in these proportions, scaled"
    )
    mode: Literal["RGB", "L"] = Field("RGB", description="RGB: colour; L: grey")


class Cache(Model):
    """The LMDB cache."""

    records: Literal["encoded", "decoded"] = Field(
        "encoded",
        description="encoded: the original bytes; decoded: images, and what decoding names, as "
        "arrays",
    )
    images: CacheImages | None = Field(
        None, description="one shape for all decoded images; null: as they are"
    )
    builder: FunctionName | None = Field(
        None,
        description="module:function of your own that makes the records of the samples; null: as "
        "records says",
    )
    builder_inputs: dict[Text, Scalar] = Field({}, description="its arguments by name")

    @property
    def kind(self) -> Literal["encoded", "decoded", "built"]:
        return "built" if self.builder else self.records

    @property
    def image_shape(self) -> ImageShape | None:
        if self.images is None:
            return None
        return ImageShape(*self.images.resize, {"RGB": 3, "L": 1}[self.images.mode])

    @property
    def use(self) -> BuilderUse | None:
        return builder_use(self.builder, self.builder_inputs) if self.builder else None

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.images and self.kind != "decoded":
            hint = "set cache.records: decoded, or remove it"
            raise RuleError("only for decoded images", key="images", hint=hint)
        if self.builder and "records" in self.model_fields_set:
            raise RuleError("cannot be combined with builder", key="records", hint="remove it")
        if self.builder_inputs and not self.builder:
            raise RuleError("there is no builder", key="builder_inputs", hint="name it in builder")
        return self


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


class Card(Model):
    """The data card that is drawn of every version."""

    samples: Whole = Field(
        24, ge=0, le=200, description="samples on its contact sheet, 0 to 200; 0: none"
    )


Delivery = Literal[
    "auto",
    "inline",
    "download",
    "bind_mount",
    "bucket",
    "stream",
    "cache",
    "data_layer",
    "volume",
    "file",
    "fast_file",
    "pipe",
    "efs",
    "fsx",
]


def _in_folder(value: str | None) -> str | None:
    if value and (value.startswith("/") or ".." in value.split("/")):
        hint = "name a file of that folder, such as resnet50.yaml"
        raise RuleError("not in configs/experiments", code="config.template", hint=hint)
    return value


class Experiment(Model):
    """The experiment config to emit."""

    template: Annotated[Text | None, AfterValidator(_in_folder)] = Field(
        None, description="file in configs/experiments; null: default.yaml"
    )
    delivery: Delivery = Field(
        "auto", description="how training reaches the data; which ones, depends on the consumer"
    )
    access: Literal["sequential", "random"] = Field(
        "sequential", description="how training reads the shards"
    )
    epochs: Number = Field(
        1, gt=0, le=1_000_000, description="passes of a trial; less than 1 if it ends earlier"
    )
    trials: Whole = Field(1, ge=1, le=1_000_000, description="number of trials")
    training_seconds: Annotated[Annotated[Number, Field(gt=0)] | None, OrNull] = Field(
        None, description="how long a trial takes; null: unknown"
    )
    context_bytes: Annotated[Annotated[Bytes, Field(ge=0)] | None, OrNull] = Field(
        None, description="size of the model code that is submitted; null: unknown"
    )


def _everything() -> dict[str, tuple[str, ...]]:
    return {"train": ("**",)}


class Dataset(Model):
    """A dataset: what it is, where it lives and how it is shaped."""

    name: Name = Field(description="name of the dataset: that of the file; may be left out")
    description: Text = Field("", description="free text")
    source: Source = Field(description="where the data lives")
    omit: Annotated[Text | None, OrNull] = Field(
        None,
        description="file beside this one whose lines are keys or globs to exclude, as with "
        "source.exclude; null: none",
    )
    splits: Annotated[
        Annotated[dict[SplitName, Globs], Tag(GLOBS_TAG)] | Annotated[HashSplits, Tag(HASH_TAG)],
        Discriminator(kind_of_splits),
    ] = Field(
        default_factory=_everything,
        description="globs by split, first match wins, such as {train: 'train/**'}; or a seeded "
        "hash: {by: hash, seed: 7, fractions: {train: 0.9, validation: 0.1}}",
    )
    samples: Samples = Field(Samples.model_construct(), description="what belongs together")
    labels: Labels | None = Field(
        None, description="where the label of a sample comes from; null: no labels"
    )
    mirror: AutoFlag = Field(
        "auto", description="copy the source's objects to the storage first; auto: where that pays"
    )
    shards: Shards = Field(
        Shards.model_construct(), description="the container files that training reads"
    )
    images: ImageLimits = Field(
        ImageLimits.model_construct(), description="what images may be like"
    )
    validate_: Literal["none", "header", "decode"] = Field(
        "header", alias="validate", description="how images are checked while shards are written"
    )
    decoding: dict[Ext, Text] = Field(
        {},
        description="by extension, what decodes parts: bytes, image, mask, npy, text, wav, or a "
        "function of your own, module:function; after it the shape that arrays must have, as in "
        "npy shape=80,*, and parameters of the function, as in module:function rate=16000",
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
    growth: Growth = Field(Growth.model_construct(), description="what a run does about changes")
    card: Card = Field(Card.model_construct(), description="the data card of a version")
    experiment: Experiment = Field(
        Experiment.model_construct(), description="the experiment config to emit"
    )

    @field_validator("decoding")
    @classmethod
    def _parsed(cls, lines: dict[str, str]) -> dict[str, str]:
        for ext, text in lines.items():
            try:
                parse_decoder(ext, text)
            except ValueError as error:
                raise RuleError(str(error), key=ext) from None
        return lines

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if not self.split_names:
            raise RuleError("at least one split is required", key="splits")
        if self.labels:
            names = set(self.split_names)
            unknown = [repr(split) for split in self.labels.files if split not in names]
            if unknown:
                listed = format_names(unknown, _SHOWN)
                raise RuleError(f"there is no split {listed}", key="labels.files")
            tables = (self.samples.annotations, self.source.rows)
            if self.labels.source == "column" and tables == (None, None):
                hint = "name the file in samples.annotations.files, or set source.rows"
                raise RuleError("there is no table", key="labels.column", hint=hint)
        self._check_stratified()
        of_labels = [
            name
            for name, feature in (self.shards.options.features or {}).items()
            if feature.source in ("label", "class")
        ]
        if of_labels and not self.labels:
            message, hint = f"{of_labels[0]!r} needs labels", "set labels, or leave it out"
            raise RuleError(message, key="shards.features", hint=hint)
        if self.mirror is True and self.source.expands:
            hint = "leave mirror out: shards are made from the source"
            raise RuleError(
                "members of archives and rows are not mirrored", key="mirror", hint=hint
            )
        if self.cache and self.cache.records == "decoded" and self.validate_ != "decode":
            hint = "set validate: decode, or cache.records: encoded"
            raise RuleError("decoded needs validate: decode", key="cache.records", hint=hint)
        if self.decoding and self.validate_ != "decode":
            hint = "set validate: decode, or remove decoding"
            raise RuleError("parts are decoded while they are checked", key="decoding", hint=hint)
        masks = [ext for ext, text in self.decoding.items() if text.split()[0] == "mask"]
        if masks and self.shards.images:
            hint = "name it there, such as seg for seg.png"
            message = "images that are encoded again have their masks in shards.images.masks"
            raise RuleError(message, key=f"decoding.{masks[0]}", hint=hint)
        return self

    def _check_stratified(self) -> None:
        if not self.split_options.over_classes:
            return
        if self.labels is None:
            hint = "add labels, or remove splits.stratify"
            raise RuleError("classes need labels", key="splits.stratify", hint=hint)
        files = self.labels.files
        if files and (files.keys() != set(self.split_names) or len(set(files.values())) > 1):
            message = "the labels have to be known before there are splits"
            hint = "name one file for all splits in labels.files"
            raise RuleError(message, key="splits.stratify", hint=hint)

    @property
    def image_options(self) -> ImageOptions:
        """Image options of a segment, without versions of libraries and decoders."""
        images = self.shards.images
        transform = images.options if images else None
        return ImageOptions(self.images.max_pixels, transform, decoder_uses(self.decoding))

    @property
    def split_options(self) -> GlobSplits | HashSplits:
        """``splits`` as an object with the properties of every kind of splits."""
        return GlobSplits(self.splits) if isinstance(self.splits, dict) else self.splits

    @property
    def split_names(self) -> tuple[str, ...]:
        """Names of the splits in the order of the file."""
        return self.split_options.names
