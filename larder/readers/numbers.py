"""Numbers of samples or records, as users give them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def checked_numbers(numbers: Sequence[int] | Array, count: int, noun: str) -> Array:
    """The numbers as int64, of which negative ones count from the end.

    Raises:
        IndexError: There are only ``count``.
        TypeError: One is not an integer, or it is a mask.
    """
    given = np.asarray(numbers)
    if given.size and given.dtype.kind not in "iu":  # an empty list has a float dtype
        raise TypeError(f"{noun} numbers must be integers, not {given.dtype}")
    wrong = given[(given < -count) | (given >= count)]
    if wrong.size:
        raise IndexError(f"{noun} {wrong[0]} of {count}")
    checked = given.astype(np.int64)
    return np.where(checked < 0, checked + count, checked)
