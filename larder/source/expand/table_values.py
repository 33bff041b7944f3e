"""The values of Arrow tables as those of Python, the same with any other packages installed.

``to_pylist`` refuses times with nanoseconds, unless pandas is there, which then makes other objects
of them, and fails without a word about the column where a date has more than four digits of a year.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

_NANOSECONDS = 1_000
"""In a microsecond, the finest unit that Python has."""


def table_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch whose columns have different names.

    Raises:
        ValueError: A value that Python cannot hold, as a clause with the column.
    """
    if not batch.num_columns:
        return [{} for _ in range(batch.num_rows)]
    names = batch.schema.names
    columns = map(table_values, batch.columns, names)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def table_values(column: pa.Array, name: str) -> list[Any]:
    """The values of a column; times with nanoseconds are strings in ISO 8601 with nine decimals.

    Raises:
        ValueError: A value that Python cannot hold, as a clause with the column.
    """
    try:
        if any(map(_has_nanoseconds, _leaves(column.type))):
            return [_value(scalar) for scalar in column]
        return list(column.to_pylist())
    except OverflowError:
        raise ValueError(f"column {name!r} has a time that is not in the years 1 to 9999") from None
    except (ValueError, KeyError) as error:  # also of a time zone that is not known
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"column {name!r} has a value that cannot be read: {reason}") from None


def _leaves(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The types of the values that a type is made of."""
    if isinstance(kind, pa.DictionaryType):
        yield from _leaves(kind.value_type)
    elif pa.types.is_nested(kind):
        for at in range(kind.num_fields):
            yield from _leaves(kind.field(at).type)
    else:
        yield kind


def _has_nanoseconds(kind: pa.DataType) -> bool:
    return pa.types.is_temporal(kind) and getattr(kind, "unit", "") == "ns"


def _value(scalar: pa.Scalar) -> Any:
    """What ``as_py`` returns, but for nanoseconds."""
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
    return _time(scalar) if _has_nanoseconds(kind) else scalar.as_py()


def _time(scalar: pa.Scalar) -> Any:
    """A time or duration with nanoseconds; without any, as Python has it."""
    kind = scalar.type
    micros, nanos = divmod(scalar.value, _NANOSECONDS)
    if pa.types.is_duration(kind):
        found = pa.scalar(micros, pa.duration("us")).as_py()
        return scalar.value / 10**9 if nanos else found
    finer = pa.time64("us") if pa.types.is_time(kind) else pa.timestamp("us", kind.tz)
    found = pa.scalar(micros, finer).as_py()
    if not nanos:
        return found
    plain = found.replace(tzinfo=None)
    offset = found.isoformat().removeprefix(plain.isoformat())
    return f"{plain.isoformat(timespec='microseconds')}{nanos:03d}{offset}"
