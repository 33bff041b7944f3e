"""The types of the fields of dataset and cluster files.

Everything is strict: a boolean is no number, a number no text, a text no number. One exception:
what an environment variable holds is always text, so a text that a variable went into
(`FilledText`) is read as the file would be had it stood there.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from larder.config.globs import compile_globs
from larder.config.interpolate import FilledText
from larder.config.secrets import holds_url_with_credentials
from larder.config.urls import CREDENTIALS_HINT, NO_CREDENTIALS, Fault, endpoint_fault, url_fault
from larder.config.yaml import scalar
from larder.errors import ConfigError
from larder.units import parse_bytes

__all__ = [
    "MAX_BYTES",
    "Bytes",
    "Endpoint",
    "Flag",
    "GlobList",
    "Globs",
    "Name",
    "Number",
    "OrNull",
    "RefusedError",
    "Region",
    "SplitName",
    "Text",
    "Texts",
    "Url",
    "Whole",
]

MAX_BYTES = 10**18
"""The most that a number of bytes may be: it has to fit 64 bits with room for sums."""

_UNFIT = re.compile(r"[\x00\ud800-\udfff]")


class RefusedError(ValueError):
    """What a rule of ours refuses: an error's code, message and hint.

    Args:
        message: A clause that does not repeat the value.
        code: Of the error.
        hint: What to do.
        detail: What may repeat parts of the value; shown only of a value that may be.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "config.invalid_value",
        hint: str = "",
        detail: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint
        self.detail = detail


def _typed(value: Any) -> Any:
    return scalar(value.strip()) if isinstance(value, FilledText) else value


def _fit(value: str) -> str:
    """A text that every file and every server can take."""
    if _UNFIT.search(value):
        raise PydanticCustomError("unfit_text", "a text in UTF-8 without NUL")
    return str(value)


def _open_text(value: str) -> str:
    if holds_url_with_credentials(value):
        _refuse(Fault("config.secret", "it must not hold credentials", "leave them out"))
    return value


def _glob(value: str) -> str:
    try:
        compile_globs([value])
    except ConfigError as error:
        raise RefusedError(f"the glob is wrong: {error.message}", hint=error.hint) from None
    except RecursionError:
        raise RefusedError("the glob is wrong: it nests too deeply") from None
    return value


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _bytes(value: Any) -> Any:
    value = _typed(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise PydanticCustomError("bytes_type", "bytes such as 150 MB or 128 MiB")
    try:
        return parse_bytes(value)
    except ValueError:
        if isinstance(value, int):
            return value  # negative: the bound of the field says so
        raise PydanticCustomError("bytes_type", "bytes such as 150 MB or 128 MiB") from None


def _refuse(fault: Fault | None) -> None:
    if fault:
        raise RefusedError(fault.message, code=fault.code, hint=fault.hint)


def _url(value: str) -> str:
    if holds_url_with_credentials(value):
        _refuse(Fault("config.secret", NO_CREDENTIALS, CREDENTIALS_HINT))
    _refuse(url_fault(value))
    scheme, separator, rest = value.partition("://")
    return f"{scheme.lower()}{separator}{rest}" if separator and "/" not in scheme else value


def _endpoint(value: str) -> str:
    if value:
        _refuse(endpoint_fault(value))
    return value


Whole = Annotated[int, BeforeValidator(_typed)]
"""A whole number; no boolean, no 7.0."""

Number = Annotated[float, BeforeValidator(_typed), Field(allow_inf_nan=False)]
"""A finite number; no boolean."""

Flag = Annotated[bool, BeforeValidator(_typed)]
"""true or false; no number, no yes."""

OrNull = BeforeValidator(_typed)
"""Around a type or None: an empty variable, as of ``${SEED:-}``, is null."""

Text = Annotated[str, AfterValidator(_fit), AfterValidator(_open_text)]
"""Any text that is UTF-8 and has no NUL."""

Texts = Annotated[tuple[Text, ...], Field(strict=False)]
"""A list of texts."""

Bytes = Annotated[
    int,
    BeforeValidator(_bytes, json_schema_input_type=int | str),
    Field(le=MAX_BYTES),
]
"""A number of bytes: a whole number, or text such as ``150 MB`` or ``128 MiB``."""

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
SplitName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]
Region = Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9-]{0,62})?$")]

Url = Annotated[str, Field(min_length=1), AfterValidator(_fit), AfterValidator(_url)]
"""A URL of a store, its scheme in lower case, or a path."""

Endpoint = Annotated[
    Text,
    AfterValidator(_endpoint),
    Field(json_schema_extra={"pattern": r"^([Hh][Tt][Tt][Pp][Ss]?://[^@?#]+)?$"}),
]
"""``http://host:port`` or ``https://host``."""

Glob = Annotated[Text, AfterValidator(_glob)]
"""A glob on keys: `larder.config.globs`."""

GlobList = Annotated[tuple[Glob, ...], Field(strict=False)]
"""A list of globs."""

Globs = Annotated[
    tuple[Glob, ...],
    BeforeValidator(_listed, json_schema_input_type=str | list[str]),
    Field(min_length=1, strict=False),
]
"""One glob or several."""
