"""Objects that no disk holds: keys, sizes, etags and bytes are made up from their numbers.

Imports nothing of Larder: the peers run it too, in an environment of their own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.growing.names import Names, Picks

_BLOCK = random.Random(7).randbytes(1 << 16)
_FACTOR = 0x9E3779B97F4A7C15
_OLD, _CHANGED, _ADDED = range(3)


@dataclass(frozen=True, slots=True)
class Made:
    """One object that was made up; its etag and its bytes follow from ``mix``, of 64 bits."""

    key: str
    size_bytes: int
    mix: int

    @property
    def etag(self) -> str:
        """16 hex digits."""
        return f"{self.mix:016x}"

    @property
    def content(self) -> bytes:
        """Bytes that do not compress; no two objects have the same."""
        start = (self.mix >> 16) % (len(_BLOCK) >> 1)
        head = self.mix.to_bytes(8, "big")
        return (head + _BLOCK[start : start + self.size_bytes])[: self.size_bytes]


@dataclass(frozen=True)
class Invented:
    """All objects, after a change; sizes go from two thirds of ``mean_bytes`` to four thirds."""

    names: Names
    mean_bytes: int
    picks: Picks
    _added: frozenset[int] = field(init=False)
    _removed: frozenset[int] = field(init=False)
    _changed: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        for name in ("added", "removed", "changed"):
            object.__setattr__(self, f"_{name}", frozenset(getattr(self.picks, name)))

    def __iter__(self) -> Iterator[Made]:
        """The objects in the order of their keys."""
        for number in range(self.names.count):
            if number not in self._removed:
                yield self._made(number, _CHANGED if number in self._changed else _OLD)
            if number in self._added:
                yield self._made(number, _ADDED)

    def find(self, key: str) -> Made:
        """One object by its key; a `KeyError` if there is none."""
        number, added = self.names.number(key)
        made = self._made(number, _ADDED if added else self._kind(number))
        if made.key != key or number not in (self._added if added else range(self.names.count)):
            raise KeyError(key)
        if not added and number in self._removed:
            raise KeyError(key)
        return made

    def added(self) -> Iterator[Made]:
        return (self._made(number, _ADDED) for number in self.picks.added)

    def changed(self) -> Iterator[Made]:
        return (self._made(number, _CHANGED) for number in self.picks.changed)

    def removed(self) -> Iterator[str]:
        """The keys that are gone."""
        return map(self.names.key, self.picks.removed)

    def _kind(self, number: int) -> int:
        return _CHANGED if number in self._changed else _OLD

    def _made(self, number: int, kind: int) -> Made:
        mix = (number * 3 + kind + 1) * _FACTOR % (1 << 64)
        smallest = self.mean_bytes * 2 // 3
        size_bytes = smallest + (mix >> 32) % (smallest + 1)
        return Made(self.names.key(number, added=kind == _ADDED), size_bytes, mix)
