"""Memory of batches is used again, but never while anybody has an array of it."""

import gc

import numpy as np

from larder.readers.memory import ReusedMemory

SHAPE = 64, 2_000


def test_memory_is_used_again_once_nobody_has_it():
    memory = ReusedMemory()
    first = memory.empty(SHAPE, np.float32)
    assert (first.shape, first.dtype, first.ctypes.data % 64) == (SHAPE, np.float32, 0)
    place = first.ctypes.data
    first[:] = 7
    row = memoryview(first[5:6].reshape(-1)[1:])
    del first
    gc.collect()
    others = [memory.empty(SHAPE, np.float32) for _ in range(20)]
    assert place not in [other.ctypes.data for other in others]
    for other in others:
        other[:] = 0
    assert row[0] == 7.0
    del row, other
    again = memory.empty(SHAPE, np.int32)
    assert again.ctypes.data == place


def test_memory_that_is_used_again_is_bounded_for_batches_of_any_size():
    memory = ReusedMemory()
    together = [memory.empty((2_000, 100), np.uint8) for _ in range(20)]
    del together
    assert sum(map(len, memory._unused.values())) == 4, "as are made ahead"
    memory = ReusedMemory()
    for rows in range(1_000, 2_000):
        memory.empty((rows, 100), np.uint8)[:] = 1
    kept = [array for unused in memory._unused.values() for array in unused]
    assert sum(array.nbytes for array in kept) < 2 * 2_000 * 100


def test_small_arrays_and_empty_ones_are_those_of_numpy():
    memory = ReusedMemory()
    for shape in ((0, 5), (), (3,)):
        assert memory.empty(shape, "int64").shape == shape
    assert not memory._unused
