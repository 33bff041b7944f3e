"""What a forked child inherits of its parent, and cannot use: locks, and handles of C libraries."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

T = TypeVar("T")

_locks: weakref.WeakSet[threading.Lock] = weakref.WeakSet()


class cached_property(functools.cached_property[T]):  # noqa: N801 - as the other
    """One without the lock of all instances that Python 3.11 has, for which a child would wait."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        super().__init__(function)
        self.lock = nullcontext()


def lock_of_process() -> threading.Lock:
    """A lock that is free in a forked child, whichever thread of the parent had it."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


parsing = lock_of_process()
"""For whoever has Python parse source, as numpy does with headers. In Python 3.11 that fails for
valid ones now and then, where two threads do it at once: SystemError, "AST constructor recursion
depth mismatch".
"""


def _free() -> None:
    for lock in list(_locks):
        if lock.locked():
            lock.release()


os.register_at_fork(after_in_child=_free)


def leave_to_parent(handles: object) -> None:
    """In a forked child: never close these, not even when it ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(handles))
