"""What shards are like, and how images are transformed before they go into them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticKnownError

from larder.config.base import Model
from larder.config.fields import (
    Bytes,
    FeatureName,
    FeatureText,
    Flag,
    OrNull,
    RefusedError,
    Text,
    Texts,
    Whole,
)
from larder.config.formats import DEFAULTS, FormatOptions, parse_feature
from larder.config.images import Transform


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
        """As part of the shape of a segment, without the libraries."""
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
