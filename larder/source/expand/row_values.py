"""Values of Arrow tables as Python values, independent of other installed packages.

``to_pylist`` refuses times with nanoseconds, or with pandas makes other objects of them. Its error
about a year of more than four digits does not name the column.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from larder.samples.naming import path_fault

NO_PARTS = "the row has no part: the columns that are parts are null"
"""The problem of a row that makes no sample, as a clause."""

_NANOSECONDS = 1_000
"""Nanoseconds in a microsecond, the finest unit of Python."""


def json_value(value: Any, scalar: Callable[[Any], Any]) -> Any:
    """Convert a value to JSON: dates and times in ISO 8601, durations in seconds, decimals as
    strings, and other values by ``scalar``.
    """
    if isinstance(value, dict):
        return {str(name): json_value(each, scalar) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(each, scalar) for each in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    return str(value) if isinstance(value, Decimal) else scalar(value)


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
    """Return the values of a column. Times with nanoseconds become strings in ISO 8601 with nine
    decimals, and UUIDs become strings.

    Raises:
        ValueError: A value that Python cannot hold, as a clause with the column.
    """
    try:
        if any(_has_nanoseconds(leaf) or _is_uuid(leaf) for leaf in _leaves(column.type)):
            return [_value(scalar) for scalar in column]
        return list(column.to_pylist())
    except OverflowError:
        raise ValueError(f"column {name!r} has a time that is not in the years 1 to 9999") from None
    except (ValueError, KeyError) as error:  # also for an unknown time zone
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"column {name!r} has a value that cannot be read: {reason}") from None


def _leaves(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types of the values inside a nested type."""
    if isinstance(kind, pa.DictionaryType):
        yield from _leaves(kind.value_type)
    elif pa.types.is_nested(kind):
        for at in range(kind.num_fields):
            yield from _leaves(kind.field(at).type)
    else:
        yield kind


def _has_nanoseconds(kind: pa.DataType) -> bool:
    return pa.types.is_temporal(kind) and getattr(kind, "unit", "") == "ns"


def _is_uuid(kind: pa.DataType) -> bool:
    return getattr(kind, "extension_name", "") == "arrow.uuid"


def _value(scalar: pa.Scalar) -> Any:
    """Convert a scalar as ``as_py`` does, but UUIDs and times with nanoseconds to strings."""
    if not scalar.is_valid:
        return None
    kind = scalar.type
    if isinstance(scalar, pa.DictionaryScalar):
        return _value(scalar.value)
    if pa.types.is_struct(kind):
        return {field.name: _value(scalar[at]) for at, field in enumerate(kind)}
    if pa.types.is_map(kind):
        return [tuple(map(_value, entry.values())) for entry in scalar.values]
    if pa.types.is_nested(kind):
        return [_value(each) for each in scalar.values]
    value = _time(scalar) if _has_nanoseconds(kind) else scalar.as_py()
    return str(value) if _is_uuid(kind) else value


def _time(scalar: pa.Scalar) -> Any:
    """Convert a time or duration; only a value with nanoseconds becomes a string or a float."""
    kind = scalar.type
    micros, nanos = divmod(scalar.value, _NANOSECONDS)
    if pa.types.is_duration(kind):
        value = pa.scalar(micros, pa.duration("us")).as_py()
        return scalar.value / 10**9 if nanos else value
    finer = pa.time64("us") if pa.types.is_time(kind) else pa.timestamp("us", kind.tz)
    value = pa.scalar(micros, finer).as_py()
    if not nanos:
        return value
    plain = value.replace(tzinfo=None)
    offset = value.isoformat().removeprefix(plain.isoformat())
    return f"{plain.isoformat(timespec='microseconds')}{nanos:03d}{offset}"


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
