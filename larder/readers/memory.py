"""Memory for the arrays of batches, used again when these arrays are gone.

To get memory from the system takes about as long as to fill it. If a process returns memory at
once, as TensorFlow configures its process, every batch pays for that.
"""

from __future__ import annotations

import math
import weakref
from contextlib import suppress
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

_FREED_BYTES: Final = 12 << 20
"""Size of the freed block. With 31 MiB, reading is faster by a third but takes 150 MB more."""

_LEAST_BYTES: Final = 64 << 10
_ALIGNMENT: Final = 64
"""TensorFlow and XLA copy arrays that do not start at a multiple of these bytes."""
_KEPT: Final = 4
"""Most unused arrays kept of about one size: as many as are made ahead."""


class ReusedMemory:
    """Makes arrays, as `numpy.empty` does. May be used by many threads."""

    def __init__(self) -> None:
        self._unused: dict[int, list[Array]] = {}

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        size_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        if size_bytes < _LEAST_BYTES:
            return np.empty(shape, dtype)
        # By the power of two: in a mix, the batches of a loader have any number of samples.
        unused = self._unused.setdefault(size_bytes.bit_length(), [])
        memory = None
        with suppress(IndexError):
            memory = unused.pop()
        if memory is None or len(memory) < size_bytes + _ALIGNMENT:
            memory = np.empty(size_bytes + _ALIGNMENT, np.uint8)
        # Views refer to `array`, not to `memory`, because `array` is over a memoryview.
        array = np.frombuffer(memory.data, np.uint8)
        weakref.finalize(array, _give_back, unused, memory).atexit = False
        start = -array.ctypes.data % _ALIGNMENT
        return np.ndarray(shape, dtype, array, start)


def _give_back(unused: list[Array], memory: Array) -> None:
    if len(unused) < _KEPT:
        unused.append(memory)


def keep_freed_memory() -> None:
    """Have the allocator of this process keep the memory of used parts for the next parts.

    glibc returns freed memory to the system, and each page costs a fault when it is used again.
    These faults take longer than reading from the page cache. After a process has freed a block of
    at most 32 MiB, glibc keeps up to twice its size at the end of each arena. Limits that are set,
    as in Larder's commands, stay as they are. See mallopt(3).
    """
    np.empty(_FREED_BYTES, np.uint8)  # its pages are never touched
