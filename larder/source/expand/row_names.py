"""The names of rows as objects: their numbers, or the values of a column. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Named(NamedTuple):
    """The columns of a table that say something about samples.

    Attributes:
        key: None for the number of the row.
        label: The one with their class; None if labels come from elsewhere.
    """

    key: str | None
    label: str | None = None


class RowName(NamedTuple):
    """The name of a row, without an extension.

    Attributes:
        name: That of its number if it cannot have another.
        problem: Why no object can have its name, as a clause; None if it can.
    """

    name: str
    problem: str | None = None


def class_name(column: str, value: Any) -> tuple[str | None, str | None]:
    """The class that the value of a column is, and why it cannot be one, as a clause.

    Null and an empty string are no class.
    """
    if value is None or value == "":
        return None, None
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None, f"its {column} is neither a string nor a whole number"
    return str(value), None


def row_names(first: int, count: int) -> list[RowName]:
    """The names of rows by their numbers, from 0, with nine digits at least."""
    return [RowName(f"{number:09d}") for number in range(first, first + count)]


def key_names(column: str, values: Iterable[Any], first: int) -> list[RowName]:
    """The names of rows by the values of a column; ``first`` is the number of the first row."""
    return [_named(column, value, first + at) for at, value in enumerate(values)]


def _named(column: str, value: Any, number: int) -> RowName:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        return RowName(f"{number:09d}", f"its {column} is neither a string nor a whole number")
    reason = _reason(text)
    return RowName(f"{number:09d}", f"its {column} {reason}") if reason else RowName(text)


def _reason(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return "is not valid Unicode"
    if _CONTROL.search(text):
        return "contains a control character"
    *folders, name = text.split("/")
    if "" in folders or not name:
        return "is empty, or has an empty segment"
    if {".", ".."} & {*folders, name}:
        return "has a segment . or .."
    if "." in name:
        return "contains a dot, where the extension of a part would begin"
    return ""
