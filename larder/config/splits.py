"""How samples are divided into splits."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from larder.config.base import Model
from larder.config.fields import (
    Flag,
    Number,
    RefusedError,
    SplitName,
    Text,
    Whole,
    grouping_pattern,
)

GLOBS_TAG, HASH_TAG = "(globs)", "(hash)"
"""The kinds of splits in the locations of pydantic's errors: cannot be keys of a file."""

HASH_EXAMPLE = "{by: hash, seed: 7, fractions: {train: 0.9, validation: 0.1}}"


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
        return grouping_pattern(value, "patient-(\\d+)")


def kind_of_splits(value: Any) -> str:
    """``by: hash``, or fractions by split, is a seeded hash; splits may have these names too."""
    if isinstance(value, dict):
        hashed = value.get("by") == "hash" or isinstance(value.get("fractions"), dict)
        return HASH_TAG if hashed else GLOBS_TAG
    return HASH_TAG if isinstance(value, HashSplits) else GLOBS_TAG
