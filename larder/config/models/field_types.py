"""The types of the fields of dataset and cluster files.

Everything is strict: a boolean is not a number, a number is not a string, a string is not a number.
Values of environment variables are always strings. So a string with a variable in it (`FilledText`)
is read as if its text were in the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isfinite
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from larder.config.config_document import FilledText, scalar
from larder.config.patterns import glob_regex, part_pattern
from larder.config.urls import check_endpoint, check_url, holds_url_with_credentials, parse_url
from larder.errors import ConfigError
from larder.names import NAME_REGEX, SPLIT_REGEX
from larder.units import parse_bytes


class Model(BaseModel):
    """Base of all models: frozen and strict; undeclared keys are an error.

    ``model_construct`` makes defaults that are models, as it builds no validator for them.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, strict=True, defer_build=True
    )


M = TypeVar("M", bound=Model)


def with_fields(model: M, **changes: Any) -> M:
    """Copy a model with other values, which are validated like the values of a file."""
    fields = {name: getattr(model, name) for name in type(model).model_fields}
    return type(model).model_validate(fields | changes)


MAX_BYTES = 10**18
"""The maximum number of bytes: fits into 64 bits, with room for sums."""

_UNFIT = re.compile(r"[\x00\ud800-\udfff]")


class RuleError(ValueError):
    """A value that one of Larder's own rules refuses.

    Attributes:
        key: The refused key inside of the value; empty for the value itself.
        detail: End of the message if the value may be shown: may repeat parts of the value.
        beside: The key next to the value without which there would be no mistake.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "config.invalid_value",
        key: str = "",
        hint: str = "",
        detail: str = "",
        beside: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.key = key
        self.hint = hint
        self.detail = detail
        self.beside = beside


def _typed(value: Any) -> Any:
    return scalar(value.strip()) if isinstance(value, FilledText) else value


def _fit(value: str) -> str:
    """Check that every file and every server accepts a string."""
    if _UNFIT.search(value):
        raise PydanticCustomError("unfit_text", "a string in UTF-8 without NUL")
    return str(value)


def _open_text(value: str) -> str:
    if holds_url_with_credentials(value):
        message, hint = "must not contain credentials", "remove them"
        raise RuleError(message, code="config.secret", hint=hint)
    return value


def accepted_by(compiler: Callable[[str], Any]) -> AfterValidator:
    def check(value: str) -> str:
        try:
            compiler(value)
        except ConfigError as error:
            raise RuleError(error.message, code=error.code, hint=error.hint) from None
        except ValueError as error:
            raise RuleError(str(error)) from None
        return value

    return AfterValidator(check)


def listed(value: Any) -> Any:
    """Turn a string into a list with one entry."""
    return (value,) if isinstance(value, str) else value


def _bytes(value: Any) -> Any:
    value = _typed(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise PydanticCustomError("bytes_type", "a size such as 150 MB or 128 MiB")
    try:
        return parse_bytes(value)
    except ValueError:
        if isinstance(value, int):
            return value  # negative: refused by the field's bound
        raise PydanticCustomError("bytes_type", "a size such as 150 MB or 128 MiB") from None


def _auto_flag(value: Any) -> Any:
    value = _typed(value)
    if isinstance(value, bool) or value == "auto":
        return value
    raise PydanticCustomError("auto_flag_type", "auto, true or false")


def _scalar(value: Any) -> Any:
    value = _typed(value)
    if isinstance(value, bool | int) or (isinstance(value, float) and isfinite(value)):
        return value
    if isinstance(value, str):
        return _open_text(_fit(value))
    raise PydanticCustomError("scalar_type", "a string, a finite number, true or false")


def _plain_url(value: str) -> str:
    scheme, rest = parse_url(value)
    return f"{scheme}://{rest}" if scheme else value


Whole = Annotated[int, BeforeValidator(_typed)]
"""A whole number; not a boolean, not 7.0."""

Number = Annotated[float, BeforeValidator(_typed), Field(allow_inf_nan=False)]
"""A finite number; not a boolean."""

Flag = Annotated[bool, BeforeValidator(_typed)]
"""true or false; not a number, not yes."""

AutoFlag = Annotated[
    Literal["auto"] | bool,
    PlainValidator(_auto_flag),
    WithJsonSchema({"enum": ["auto", True, False]}),
]
"""auto, true or false."""

Scalar = Annotated[
    bool | int | float | str,
    PlainValidator(_scalar),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]
"""A string, a number, true or false."""

OrNull = BeforeValidator(_typed)
"""Validator for a type or None: an empty variable, as in ``${SEED:-}``, is null."""

Text = Annotated[str, AfterValidator(_fit), AfterValidator(_open_text)]
"""Any string that is UTF-8 and has no NUL."""


def _delimiter(value: str) -> str:
    if len(value) != 1 or value in '\n\r"':
        raise RuleError("not one character that can separate fields")
    return value


Delimiter = Annotated[Text, AfterValidator(_delimiter)]
"""A character that separates the fields of CSV."""

Texts = Annotated[tuple[Text, ...], Field(strict=False)]
"""A list of strings."""

Bytes = Annotated[
    int, BeforeValidator(_bytes, json_schema_input_type=int | str), Field(le=MAX_BYTES)
]
"""A number of bytes: a whole number, or a string such as ``150 MB`` or ``128 MiB``."""

Name = Annotated[str, Field(pattern=f"^{NAME_REGEX}$")]
SplitName = Annotated[str, Field(pattern=f"^{SPLIT_REGEX}$")]
Region = Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9-]{0,62})?$")]

FunctionName = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")]
"""A function of a module, ``module:function``."""

FeatureName = Annotated[str, Field(pattern=r"^[!-~]{1,200}$")]
"""The name of a feature: printable ASCII without spaces."""

Url = Annotated[
    str,
    Field(min_length=1),
    AfterValidator(_fit),
    accepted_by(check_url),
    AfterValidator(_plain_url),
]
"""A URL of a store, its scheme in lower case, or a path."""

Endpoint = Annotated[Text, accepted_by(lambda value: value and check_endpoint(value))]
"""``http://host:port`` or ``https://host``."""

Glob = Annotated[Text, accepted_by(glob_regex)]
"""A glob on keys; see `larder.config.patterns`."""

Ext = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*(\.[a-z0-9][a-z0-9_-]*)*$", max_length=63)]
"""The extension of a part, in lower case."""

PartName = Annotated[str, Field(pattern=f"^{NAME_REGEX}$")]
"""The name of a part, with which its extension begins."""

PartPattern = Annotated[Text, accepted_by(part_pattern)]
"""A pattern that finds a part; see `larder.config.patterns`."""

AnyGlobs = Annotated[
    tuple[Glob, ...],
    BeforeValidator(listed, json_schema_input_type=str | list[str]),
    Field(strict=False),
]
"""One glob or a list of them, which may be empty."""

Globs = Annotated[AnyGlobs, Field(min_length=1)]
"""One glob or several."""


def grouping_pattern(value: str | None, example: str) -> str | None:
    """Check that a regular expression has a group; the message shows ``example``."""
    if value is not None:
        try:
            groups = re.compile(value).groups
        except (re.error, OverflowError, RecursionError) as error:
            raise RuleError("not a regular expression", detail=str(error)) from None
        if groups < 1:
            raise RuleError(f"the pattern needs a group, as in {example}")
    return value
