"""Locks and handles of C libraries that a forked child inherits from its parent but cannot use."""

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
    """A cached property without Python 3.11's lock of all instances, which could block a child."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        super().__init__(function)
        self.lock = nullcontext()


def lock_of_process() -> threading.Lock:
    """Return a lock that is free in a forked child, even if a thread of the parent held it."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


parsing = lock_of_process()
"""Lock for code that has Python parse source, as numpy does with headers. In Python 3.11, two
threads that parse valid source at once fail now and then: SystemError, "AST constructor recursion
depth mismatch".
"""


def _free() -> None:
    for lock in list(_locks):
        if lock.locked():
            lock.release()


os.register_at_fork(after_in_child=_free)


def leave_to_parent(handles: object) -> None:
    """Never close these handles in a forked child, not even when the child ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(handles))
