"""Arrow columns as Python values."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["column_texts"]


def column_texts(column: pa.Array) -> list[str]:
    """The strings of a column without nulls.

    Through numpy: ``to_pylist`` creates an Arrow scalar for every value and is ten times slower.
    """
    texts: list[str] = column.to_numpy(zero_copy_only=False).tolist()
    return texts
