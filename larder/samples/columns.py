"""Arrow columns as Python values."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["column_texts"]


def column_texts(column: pa.Array) -> list[str]:
    """The texts of a column without nulls.

    By way of numpy: ``to_pylist`` makes an Arrow scalar of every value, ten times as slow.
    """
    texts: list[str] = column.to_numpy(zero_copy_only=False).tolist()
    return texts
