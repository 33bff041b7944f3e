"""The contents of dataset and cluster files: frozen models that refuse unknown keys."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from larder.config.base import Model
from larder.config.cluster import Cluster, Consumer, Mount, Nodes, Runner
from larder.config.copying import Copy, Skyplane
from larder.config.decoders import decoder_uses, parse_decoder
from larder.config.fields import (
    AutoFlag,
    Ext,
    Flag,
    Globs,
    Name,
    RefusedError,
    SplitName,
    Text,
    Whole,
)
from larder.config.images import MAX_PIXELS, ImageOptions
from larder.config.labels import Labels
from larder.config.samples import Annotations, Missing, Samples
from larder.config.shards import ImageTransform, Shards
from larder.config.splits import (
    GLOBS_TAG,
    HASH_EXAMPLE,
    HASH_TAG,
    HashSplits,
    kind_of_splits,
)
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
from larder.units import format_names

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

_SHOWN = 5


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


class Dataset(Model):
    """A dataset: what it is, where it lives and how it is shaped."""

    name: Name = Field(description="name of the dataset: that of the file; may be left out")
    description: Text = Field("", description="free text")
    source: AnySource = Field(description="where the data lives")
    splits: Annotated[
        Annotated[dict[SplitName, Globs], Tag(GLOBS_TAG)] | Annotated[HashSplits, Tag(HASH_TAG)],
        Discriminator(kind_of_splits),
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
                raise RefusedError(f"{ext}: {error}") from None
        return lines

    @field_validator("splits", mode="before")
    @classmethod
    def _not_fractions(cls, value: Any) -> Any:
        globs = isinstance(value, dict) and kind_of_splits(value) == GLOBS_TAG
        if globs and value and all(isinstance(rule, int | float) for rule in value.values()):
            message = "numbers are fractions, which need a seed"
            raise RefusedError(message, hint=f"write splits: {HASH_EXAMPLE}")
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if not isinstance(self.splits, HashSplits) and not self.splits:
            raise RefusedError("splits: at least one split is required")
        if self.labels:
            names = set(self.split_names)
            unknown = [repr(split) for split in self.labels.files if split not in names]
            if unknown:
                listed = format_names(unknown, _SHOWN)
                raise RefusedError(f"labels.files: there is no split {listed}")
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
        """In the order of the file."""
        return tuple(self.splits.fractions if isinstance(self.splits, HashSplits) else self.splits)
