"""A store that lets something happen right before a call: another run, or a change.

::

    meanwhile = Meanwhile()
    meanwhile.before("put", "tags/latest.json", other_run)     # before the first such put, once
    store = MeanwhileStore(MemoryStore("local"), meanwhile)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from larder.store.base import Store
from larder.store.delegate import DelegatingStore

T = TypeVar("T")


class Meanwhile:
    """What happens before which calls, of all stores that share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acts: list[tuple[str, str, Callable[[], object]]] = []

    def before(self, method: str, key: str, act: Callable[[], object], *, times: int = 1) -> None:
        """Plan what happens before the next ``times`` calls; their callers wait for it.

        ``method`` is as in `tests.support.faults.FaultyStore.add`, ``key`` a piece of the key, or
        of the prefix that is listed.
        """
        with self._lock:
            self._acts += [(method, key, act)] * times

    @property
    def waiting(self) -> int:
        """Number of acts that have not happened yet."""
        with self._lock:
            return len(self._acts)

    def call(self, method: str, key: str) -> None:
        """A call is about to be made: let happen what is due, at most one act."""
        with self._lock:
            due = [act for act in self._acts if act[0] == method and act[1] in key][:1]
            for act in due:
                self._acts.remove(act)
        for _, _, act_now in due:
            act_now()


class MeanwhileStore(DelegatingStore):
    """Forwards every call, after what happens before it."""

    def __init__(self, inner: Store, meanwhile: Meanwhile) -> None:
        super().__init__(inner)
        self._meanwhile = meanwhile

    def around(self, method: str, key: str, call: Callable[[], T]) -> T:
        self._meanwhile.call(method, key)
        return call()
