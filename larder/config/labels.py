"""Where the labels of samples come from."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from larder.config.base import Model
from larder.config.fields import RefusedError, SplitName, Text, Texts, grouping_pattern


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
        given = {"pattern": self.pattern, "column": self.column}
        for name, value in given.items():
            if self.source == name and value is None:
                raise RefusedError(f"labels.from: {name} needs labels.{name}")
            if self.source != name and value is not None:
                hint = f"set labels.from: {name}, or remove labels.{name}"
                raise RefusedError(f"labels.{name} is given, but not used", hint=hint)
        return self
