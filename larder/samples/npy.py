"""The headers of .npy files.

https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, BinaryIO

import numpy as np

from larder.forking import parsing

_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_header(
    file: BinaryIO, versions: Collection[tuple[int, int]] = _HEADERS.keys()
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the shape, whether the order is by columns, and the dtype.

    Raises:
        ValueError, TypeError, RecursionError: The header is invalid, or of another version.
    """
    version = np.lib.format.read_magic(file)
    if version not in versions:
        raise ValueError(f"version {version[0]}.{version[1]} of the format is not supported")
    with parsing:
        shape, by_columns, dtype = _HEADERS[version](file)
    return shape, by_columns, dtype
