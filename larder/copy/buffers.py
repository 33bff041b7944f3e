"""Buffers for the parts of large objects, used again and again.

They are outside of the heap: what threads allocate and free there in pieces of this size is not
given back to the system, and a copy would take twice the memory that it is allowed. New pages cost
the system a quarter of a second per gigabyte.
"""

from __future__ import annotations

import mmap
import threading


class Buffers:
    """Buffers of one size; larger ones are made on request, and not kept. Thread-safe.

    As many are kept as were ever in use at the same time, so a `larder.limits.ByteBudget` that is
    held for each of them bounds their memory too.
    """

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._lock = threading.Lock()
        self._free: list[memoryview] = []

    def take(self, length: int) -> memoryview:
        """A buffer of at least so many bytes, with any content."""
        with self._lock:
            if self._free and length <= self._size_bytes:
                return self._free.pop()
        return memoryview(mmap.mmap(-1, max(1, length, self._size_bytes)))

    def give(self, buffer: memoryview) -> None:
        if len(buffer) == self._size_bytes:
            with self._lock:
                self._free.append(buffer)
