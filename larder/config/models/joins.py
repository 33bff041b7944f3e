"""Joins, annotations and missing parts of samples."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from larder.config.models.field_types import (
    Delimiter,
    Ext,
    Flag,
    Model,
    OrNull,
    PartName,
    PartPattern,
    RuleError,
    Text,
    listed,
)
from larder.config.patterns import part_pattern

_MOST_PATTERNS = 32

Missing = Literal["refuse", "skip", "keep"]
"""The treatment of a sample that lacks a part."""


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
    delimiter: Delimiter | None = Field(
        None, description="what separates the fields of CSV; null: a comma, or a tab for .tsv"
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
        if self.delimiter is not None and self.format not in ("auto", "csv"):
            raise RuleError(f"does not apply to format: {self.format}", key="delimiter")
        if self.part in self.columns:
            raise RuleError(f"{self.part} is the part of the entry", key="columns")
        if len(set(self.files)) < len(self.files):
            raise RuleError("a file is named twice", key="files")
        return self


def _kind_of_join(value: Any) -> str:
    """Tell the kind of a join, so that mistakes are reported for this kind only."""
    return "(list)" if isinstance(value, list | tuple | str) else "(mapping)"


class Samples(Model):
    """What belongs together, if not the objects with the same name up to its first dot."""

    join: Annotated[
        Annotated[
            Annotated[dict[PartName, PartPattern], Tag("(mapping)")]
            | Annotated[tuple[PartPattern, ...], Field(strict=False), Tag("(list)")],
            Discriminator(_kind_of_join),
        ]
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
                raise RuleError(f"expected 1 to {_MOST_PATTERNS} patterns")
            if len({part_pattern(text).placeholder for text in texts}) > 1:
                raise RuleError("all patterns need the same name in braces")
            if len(set(texts)) < len(texts):
                raise RuleError("a pattern is there twice")
        return value
