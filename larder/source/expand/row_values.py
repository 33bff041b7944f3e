"""Values of Arrow tables as Python values, independent of other installed packages.

With pandas, ``to_pylist`` makes objects of pandas of times with nanoseconds; without pandas, it
refuses them. Its error about a year of more than four digits does not name the column.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa

from larder.samples.naming import path_fault

NO_PARTS = "the row has no part: the columns that are parts are null"
"""The problem of a row that makes no sample, as a clause."""


def json_value(value: Any, scalar: Callable[[Any], Any]) -> Any:
    """Convert a value to JSON: dates and times in ISO 8601, durations in seconds, decimals and
    UUIDs as strings, and other values by ``scalar``.
    """
    if isinstance(value, dict):
        return {str(name): json_value(each, scalar) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(each, scalar) for each in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        # The sum of pandas is rounded twice.
        return datetime.timedelta(value.days, value.seconds, value.microseconds).total_seconds()
    return str(value) if isinstance(value, Decimal | UUID) else scalar(value)


def table_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows of a batch whose columns have different names.

    Raises:
        ValueError: A value that Python cannot hold, as a clause with the column.
    """
    if not batch.num_columns:
        return [{} for _ in range(batch.num_rows)]
    names = batch.schema.names
    columns = map(table_values, batch.columns, names)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def table_values(column: pa.Array, name: str) -> list[Any]:
    """Return the values of a column; if the column has UUIDs, as strings.

    Raises:
        ValueError: A value that Python cannot hold, as a clause with the column.
    """
    try:
        if any(map(_has_nanoseconds, _leaves(column))):
            raise ValueError("a time is finer than a microsecond: round it, or leave it out")
        values: list[Any] = column.to_pylist()
    except OverflowError:
        raise ValueError(f"column {name!r} has a time that is not in the years 1 to 9999") from None
    except (ValueError, KeyError) as error:  # also for an unknown time zone
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"column {name!r} has a value that cannot be read: {reason}") from None
    if getattr(column.type, "extension_name", "") == "arrow.uuid":
        return [None if value is None else str(value) for value in values]
    return values


def _leaves(column: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays of values inside a nested array."""
    if isinstance(column, pa.DictionaryArray):
        yield from _leaves(column.dictionary)
    elif isinstance(column, pa.StructArray | pa.MapArray):
        is_map = isinstance(column, pa.MapArray)
        for each in (column.keys, column.items) if is_map else column.flatten():
            yield from _leaves(each)
    elif pa.types.is_nested(column.type):
        yield from _leaves(column.flatten())
    else:
        yield column


def _has_nanoseconds(leaf: pa.Array) -> bool:
    if getattr(leaf.type, "unit", "") != "ns":
        return False
    return bool(np.any(leaf.drop_null().cast(pa.int64()).to_numpy() % 1_000))


class Named(NamedTuple):
    """The columns of a table with the names and classes of samples.

    Attributes:
        key: Column with the names; None for numbers of rows.
        label: Column with the classes; None if labels come from elsewhere.
    """

    key: str | None
    label: str | None = None


class RowName(NamedTuple):
    """The name of a row, without an extension.

    Attributes:
        name: The number of the row if its value is no valid name.
        problem: The reason why no object can have the row's name, as a clause; None if it can.
    """

    name: str
    problem: str | None = None


def is_unicode(text: str) -> bool:
    """Whether a text has no unpaired surrogate, such as half an emoji in JSON."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def class_name(column: str, value: Any) -> tuple[str | None, str | None]:
    """Return the class that a column's value names, and its problem as a clause.

    Null and an empty string are no class.
    """
    if value is None or value == "":
        return None, None
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None, f"its {column} is neither a string nor a whole number"
    text = str(value)
    return (text, None) if is_unicode(text) else (None, f"its {column} is not valid Unicode")


def row_names(first: int, count: int) -> list[RowName]:
    """Name rows by their numbers, from ``first``, with at least nine digits."""
    return [RowName(f"{number:09d}") for number in range(first, first + count)]


def key_names(column: str, values: Iterable[Any], first: int) -> list[RowName]:
    """Name rows by the values of a column; ``first`` is the number of the first row."""
    return [_named(column, value, first + at) for at, value in enumerate(values)]


def _named(column: str, value: Any, number: int) -> RowName:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        return RowName(f"{number:09d}", f"its {column} is neither a string nor a whole number")
    reason = _reason(text)
    return RowName(f"{number:09d}", f"its {column} {reason}") if reason else RowName(text)


def _reason(text: str) -> str:
    if not is_unicode(text):
        return "is not valid Unicode"
    if fault := path_fault(text):
        return fault
    if "." in text.rpartition("/")[2]:
        return "contains a dot, where the extension of a part would begin"
    return ""
