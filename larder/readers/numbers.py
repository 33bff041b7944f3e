"""Checks of sample and record numbers given by users, shared by all readers by number."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def numbers_of(index: Any, count: int, noun: str) -> tuple[Array, bool]:
    """Return the numbers that an index in square brackets names, and whether it is one number.

    An index is an integer of any kind, a slice, or a list or array of integers.
    """
    if isinstance(index, slice):
        return np.arange(*index.indices(count)), False
    return checked_numbers(index, count, noun), not _is_list(index)


def checked_numbers(numbers: Sequence[int] | Array, count: int, noun: str) -> Array:
    """Return the numbers as int64; negative ones count from the end.

    Raises:
        IndexError: A number is out of range for ``count``.
        TypeError: A number is not an integer, or ``numbers`` is a mask.
    """
    if not isinstance(numbers, range) and not hasattr(numbers, "__array__"):
        listed = numbers if _is_list(numbers) else [numbers]
        numbers = [_integer(number, noun) for number in listed]
        large = next((number for number in numbers if not -count <= number < count), None)
        if large is not None:  # the number may be too large for an array
            raise IndexError(f"{noun} {large} of {count}")
    given = np.atleast_1d(np.asarray(numbers))
    if given.size and given.dtype.kind not in "iu":  # an empty list has a float dtype
        raise _no_integer(given.dtype, noun)
    if given.ndim > 1:
        raise TypeError(f"{noun} numbers must be a flat list, not of shape {given.shape}")
    wrong = given[(given < -count) | (given >= count)]
    if wrong.size:
        raise IndexError(f"{noun} {wrong[0]} of {count}")
    checked = given.astype(np.int64)
    return np.where(checked < 0, checked + count, checked)


def _is_list(index: Any) -> bool:
    if isinstance(index, str | bytes):
        return False
    try:
        len(index)
    except TypeError:  # also of an array or tensor without a dimension
        return False
    return True


def _integer(number: Any, noun: str) -> int:
    if type(number) is int:  # the checks below take a microsecond each
        return number
    if np.asarray(number).dtype != np.bool_:
        try:
            return operator.index(number)
        except TypeError:
            pass
    raise _no_integer(type(number).__name__, noun)


def _no_integer(kind: object, noun: str) -> TypeError:
    return TypeError(f"{noun} numbers must be integers, not {kind}")
