"""``source.rows``: objects whose rows are samples."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from larder.config.base import Model
from larder.config.fields import Globs, RefusedError, Text

RowFormat = Literal["jsonl", "csv", "text", "parquet"]

FORMATS: dict[str, RowFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "text",
    ".parquet": "parquet",
}
"""The format of a table by the end of its key."""

_RESERVED = ("cls", "json")


class Rows(Model):
    """Tables whose rows are samples."""

    format: Literal["auto", "jsonl", "csv", "text", "parquet"] = Field(
        "auto",
        description="jsonl: JSON Lines; csv: with a header; text: lines; parquet; auto: by the "
        "extension",
    )
    files: Globs | None = Field(
        None, description="keys of the tables: one glob or a list; null: by their extension"
    )
    key: Text | None = Field(
        None,
        min_length=1,
        description="column or field that names the samples of a table; null: the row's number",
    )
    delimiter: Text | None = Field(
        None, description="what separates the fields of CSV; null: a comma, or a tab for .tsv"
    )
    columns: dict[Text, Text | None] = Field(
        {},
        description="of Parquet: columns that become parts of their own, with their extension, "
        "such as {image.bytes: jpg}; null leaves a column out",
    )

    @field_validator("columns")
    @classmethod
    def _extensions(cls, value: dict[str, str | None]) -> dict[str, str | None]:
        given = [ext for ext in value.values() if ext is not None]
        for ext in given:
            if not all(ext.split(".")) or "/" in ext or ext in _RESERVED:
                hint = "write it without a dot before it, as in jpg; json has the other columns"
                raise RefusedError("columns: not an extension", hint=hint, detail=repr(ext))
            if given.count(ext) > 1:
                raise RefusedError("columns: two columns with one extension", detail=repr(ext))
        return value

    @field_validator("delimiter")
    @classmethod
    def _separates(cls, value: str | None) -> str | None:
        if value is not None and (len(value) != 1 or value in '\n\r"'):
            raise RefusedError("delimiter: not one character that can separate fields")
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.files is not None and self.format == "auto":
            raise RefusedError("rows.files needs rows.format: it names the format of all of them")
        for name, given, formats in (
            ("key", self.key, ("auto", "jsonl", "csv", "parquet")),
            ("delimiter", self.delimiter, ("auto", "csv")),
            ("columns", self.columns, ("auto", "parquet")),
        ):
            if given and self.format not in formats:
                raise RefusedError(f"rows.{name}: does not apply to rows.format: {self.format}")
        return self
