"""Batches in memory that two processes share: one writes them, the other uses them in place.

The memory is a file without a name (memfd_create). The system frees it with the last process that
has it, even if processes are killed. It is no file of /dev/shm, whose size does not limit it.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from larder.disk import limit_error

Array = np.ndarray[Any, Any]

_SLOT_BYTES = 1 << 36
"""Bytes of a slot in the file; only written pages take memory."""

_GROWTH_BYTES = 1 << 20
_ALIGNMENT = 64

IS_SUPPORTED = hasattr(os, "memfd_create")

_memories: weakref.WeakSet[SharedMemory] = weakref.WeakSet()
_lending = threading.RLock()
"""Held while this process forks: a slot lent meanwhile would be shared with the child.

Reentrant, because a signal handler may fork in a thread that holds it.
"""

# Python's mmap duplicates the descriptor for each slot, and cannot map again at the same address.
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value
_MAP_FIXED = 0x10


class SlotLayout(NamedTuple):
    """Places of a value in a slot: its pickled form, then its arrays."""

    spans: list[tuple[int, int]]
    bytes: int


class SharedMemory:
    """Slots of any size, numbered from 0, as mapped by one of the two processes."""

    def __init__(self, descriptor: int | None = None) -> None:
        created = descriptor is None
        if descriptor is None:
            try:
                descriptor = os.memfd_create("larder-batches")
            except OSError as error:
                raise (limit_error(error, "workers") or error) from None
        self.descriptor = descriptor
        self._mapped: dict[int, ctypes.Array[ctypes.c_ubyte]] = {}
        self._lent: weakref.WeakValueDictionary[int, Array] = weakref.WeakValueDictionary()
        _memories.add(self)
        if created:
            self.slot(0, 1)

    def slot(self, number: int, size_bytes: int) -> Array:
        """Map a slot of at least this size; the process that writes grows the slot."""
        mapped = self._mapped.get(number)
        if mapped is None or len(mapped) < size_bytes:
            length = max(1, -(-size_bytes // _GROWTH_BYTES)) * _GROWTH_BYTES
            start = number * _SLOT_BYTES
            if os.fstat(self.descriptor).st_size < start + length:
                os.ftruncate(self.descriptor, start + length)
            address = self._map(number, length, mmap.MAP_SHARED)
            mapped = self._mapped[number] = (ctypes.c_ubyte * length).from_address(address)
            weakref.finalize(mapped, _libc.munmap, address, length).atexit = False
        return np.frombuffer(memoryview(mapped), np.uint8)

    def lent(self, number: int, size_bytes: int, give_back: Callable[[int], None]) -> Array:
        """Lend a slot to this process, and call ``give_back`` once all arrays in it are gone."""
        slot = self.slot(number, size_bytes)
        with _lending:
            self._lent[number] = slot
        weakref.finalize(slot, give_back, number).atexit = False
        return slot

    def before_fork(self) -> None:
        """Turn lent slots into private memory at the same addresses.

        A forked child may keep its batches while the slots are written again. All pages are copied
        at once; concurrent writes of other threads are not lost.
        """
        for number, slot in list(self._lent.items()):
            self._mapped.pop(number, None)
            flags = mmap.MAP_PRIVATE | _MAP_FIXED | mmap.MAP_POPULATE
            self._map(number, len(slot), flags, slot.ctypes.data)
            self._lent.pop(number, None)  # its pages no longer belong to the file

    def _map(self, number: int, length: int, flags: int, address: int | None = None) -> int:
        access = mmap.PROT_READ | mmap.PROT_WRITE
        file = self.descriptor, number * _SLOT_BYTES
        mapped: int = _libc.mmap(address, length, access, flags, *file)
        if mapped == _FAILED:
            error = OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            raise limit_error(error, "workers") or error
        return mapped


def _before_fork() -> None:
    _lending.acquire()
    for memory in list(_memories):
        memory.before_fork()


os.register_at_fork(
    before=_before_fork, after_in_parent=_lending.release, after_in_child=_lending.release
)


class SlotWriter:
    """Makes arrays in a slot if there is room, and then writes the value that has them.

    The slot has room for the largest value that was written to it before.
    """

    def __init__(self, memory: SharedMemory, number: int) -> None:
        self._memory = memory
        self._number = number
        self._slot = memory.slot(number, 1)
        self._lock = threading.Lock()
        self._used = 0

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        dtype = np.dtype(dtype)
        size_bytes = math.prod(shape) * dtype.itemsize
        with self._lock:
            start = self._start(size_bytes)
        if dtype.hasobject or start + size_bytes > len(self._slot):
            return np.empty(shape, dtype)
        return np.ndarray(shape, dtype, self._slot, start)

    def write(self, value: Any) -> SlotLayout:
        """Pickle a value into the slot; copy its arrays unless they are in the slot already."""
        buffers: list[pickle.PickleBuffer] = []
        body = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        base, size_bytes = self._slot.ctypes.data, len(self._slot)
        copied: list[tuple[int, Array]] = []
        spans = []
        contents: list[bytes | memoryview] = [body, *(buffer.raw() for buffer in buffers)]
        for each in contents:
            content = np.frombuffer(each, np.uint8)
            start = content.ctypes.data - base
            if not 0 <= start < size_bytes:
                start = self._start(len(content))
                copied.append((start, content))
            spans.append((start, len(content)))
        slot = self._memory.slot(self._number, self._used)
        for start, content in copied:
            slot[start : start + len(content)] = content
        return SlotLayout(spans, self._used)

    def _start(self, size_bytes: int) -> int:
        start = -(-self._used // _ALIGNMENT) * _ALIGNMENT
        self._used = start + size_bytes
        return start


def read_value(
    slot: Array, layout: SlotLayout, copy: Callable[[Array], Array] | None = None
) -> Any:
    """Read a value from a slot; its arrays keep ``slot`` alive, unless ``copy`` copies them."""
    body, *arrays = [slot[start : start + length] for start, length in layout.spans]
    # Pickles are safe here: one of the two processes has started the other.
    buffers = [copy(each) if copy else each for each in arrays]
    return pickle.loads(body.data, buffers=buffers)  # noqa: S301
