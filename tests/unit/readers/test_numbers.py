"""An index names the same numbers for every reader."""

import numpy as np
import pytest

from larder.readers.numbers import numbers_of

ONE = [3, -2, np.int8(3), np.uint64(3), np.array(3), np.array(-2, np.int16)]
LISTS = [
    *([3, -2], (3,), range(1, 4), [], [np.uint64(3), -2, 1]),
    *(np.array([3, 0], np.uint64), np.array([-1], np.int8), np.arange(0), np.array([])),
]
SLICES = [slice(None), slice(1, 4), slice(-2, None), slice(None, None, -1), slice(9, 1)]
NO_INTEGERS = [
    *(True, False, np.True_, 1.0, "1", "12", None, ..., b"1", 1j, np.array(True)),
    *([True, False, True, False, True], [1, True], np.ones(5, bool), [1.0], ["1"], [None]),
    *(np.array([0.0]), [[0, 1]], [[0], [1, 2]], np.array([[0, 1]]), slice(0.5), slice("1")),
]
OUTSIDE = [5, -6, 2**63, -(2**70), np.uint64(2**64 - 1), np.array([2**64 - 1], np.uint64), [0, 5]]


@pytest.mark.parametrize("index", ONE, ids=repr)
def test_an_integer_of_any_kind_is_one_number(index):
    numbers, is_one = numbers_of(index, 5, "sample")
    assert (numbers.dtype, numbers.tolist(), is_one) == (np.int64, [3], True)


@pytest.mark.parametrize("index", [*LISTS, *SLICES], ids=repr)
def test_lists_and_slices_are_several_numbers(index):
    is_slice = isinstance(index, slice)
    wanted = range(5)[index] if is_slice else (range(5)[int(each)] for each in index)
    numbers, is_one = numbers_of(index, 5, "sample")
    assert (numbers.dtype, numbers.tolist(), is_one) == (np.int64, [*wanted], False)


@pytest.mark.parametrize("index", NO_INTEGERS, ids=repr)
def test_what_is_no_integer_is_refused(index):
    with pytest.raises(TypeError):
        numbers_of(index, 5, "sample")


@pytest.mark.parametrize("index", OUTSIDE, ids=repr)
def test_a_number_that_no_sample_has_is_named(index):
    with pytest.raises(IndexError, match=r"^record -?\d+ of 5$"):
        numbers_of(index, 5, "record")
