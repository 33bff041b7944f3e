"""A store that fails on demand: for tests of code that uses a store.

::

    store = FaultyStore(MemoryStore("test"))
    store.add("get", unavailable(), nth=3)              # the third get answers 503, once
    store.add("put", LoseAnswer())                      # the put is done; its answer is lost
    store.add("open", FlipBit(7), key="a.tar")          # reading a.tar returns one wrong bit
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from larder.errors import LarderError, ObjectError, RetryableError, StoreError
from larder.store.base import Buffer, Features, Reader, Store
from larder.store.delegate import DelegatingReader, DelegatingStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fail:
    """The call does nothing and raises an error."""

    error: LarderError | OSError


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """The call is done, and then fails as if its answer were lost."""


@dataclass(frozen=True, slots=True)
class FlipBit:
    """A ``get`` or ``open`` returns one wrong bit (bit 0 is the lowest of the first byte)."""

    bit: int = 0


@dataclass(frozen=True, slots=True)
class Truncate:
    """A ``get`` or ``open`` ends early, without an error."""

    keep_bytes: int


@dataclass(frozen=True, slots=True)
class BreakStream:
    """An ``open`` returns some bytes; then the connection breaks."""

    after_bytes: int


@dataclass(frozen=True, slots=True)
class ChangeObject:
    """After an ``open``, before its first byte is read, the content of the object changes."""

    data: bytes


Effect = Fail | LoseAnswer | FlipBit | Truncate | BreakStream | ChangeObject


def unavailable() -> Fail:
    """503 Slow Down."""
    return Fail(RetryableError("store.unavailable", "the store answers 503 SlowDown"))


def denied() -> Fail:
    """403 for the whole store."""
    return Fail(StoreError("store.denied", "the store answers 403 AccessDenied"))


def unreadable() -> Fail:
    """403 for one object."""
    return Fail(ObjectError("object.unreadable", "the store answers 403 AccessDenied"))


def full() -> Fail:
    """No space left on the device."""
    return Fail(StoreError("store.full", "no space left on device"))


@dataclass(slots=True)
class _Fault:
    method: str
    effect: Effect
    key: str | None
    skip: int
    times: int | None


class FaultyStore(DelegatingStore):
    """Forwards calls, except for the faults that were added."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self._faults: list[_Fault] = []

    def add(
        self,
        method: str,
        effect: Effect,
        *,
        nth: int = 1,
        times: int | None = 1,
        key: str | None = None,
    ) -> None:
        """Plan a fault of the ``nth`` call from now, counted from 1; ``times`` is None for all.

        ``method`` is ``list`` (each page), ``head``, ``open``, ``get``, ``put``, ``writer``,
        ``write``, ``commit``, ``upload`` or ``delete``. With a ``key`` (for a listing: a prefix),
        only its calls count.
        """
        with self._lock:
            self._faults.append(_Fault(method, effect, key, nth - 1, times))

    def clear(self) -> None:
        """Remove the faults that have not happened yet."""
        with self._lock:
            self._faults.clear()

    def due(self, method: str, key: str) -> Effect | None:
        """Count a call, and return what happens to it."""
        with self._lock:
            matching = [f for f in self._faults if f.method == method and f.key in (None, key)]
            for fault in matching:
                if fault.skip:
                    fault.skip -= 1
                elif fault.times is None or fault.times > 0:
                    fault.times = None if fault.times is None else fault.times - 1
                    return fault.effect
        return None

    @property
    def features(self) -> Features:
        """As in the wrapped store, but all bytes pass through this one."""
        return replace(self.inner.features, place=None)

    def around(self, method: str, key: str, call: Callable[[], T]) -> T:
        effect = self.due(method, key)
        _before(effect)
        result = call()
        if isinstance(effect, LoseAnswer):
            raise RetryableError("store.unavailable", "connection reset")
        return result

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        effect = self.due("open", key)
        _before(effect)
        reader = self.inner.open(key, offset=offset, length=length, if_match=if_match)
        if isinstance(effect, ChangeObject):
            self.inner.put(key, effect.data)
        return FaultyReader(reader, effect)

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        effect = self.due("get", key)
        _before(effect)
        data = self.inner.get(key, offset=offset, length=length, if_match=if_match)
        return b"".join(_spoil(iter([data]), effect))


class FaultyReader(DelegatingReader):
    def __init__(self, inner: Reader, effect: Effect | None) -> None:
        super().__init__(inner)
        self._effect = effect

    def __iter__(self) -> Iterator[Buffer]:
        return _spoil(iter(self.inner), self._effect)


def _before(effect: Effect | None) -> None:
    if isinstance(effect, Fail):
        raise effect.error


def _spoil(chunks: Iterator[Buffer], effect: Effect | None) -> Iterator[Buffer]:
    if isinstance(effect, FlipBit):
        return _flip(chunks, effect.bit)
    if isinstance(effect, Truncate):
        return _cut(chunks, effect.keep_bytes)
    if isinstance(effect, BreakStream):
        return _break(chunks, effect.after_bytes)
    return chunks


def _flip(chunks: Iterator[Buffer], bit: int) -> Iterator[Buffer]:
    place, mask = bit // 8, 1 << bit % 8
    for chunk in chunks:
        data = bytearray(chunk)
        if 0 <= place < len(data):
            data[place] ^= mask
        place -= len(data)
        yield bytes(data)


def _cut(chunks: Iterator[Buffer], keep_bytes: int) -> Iterator[Buffer]:
    for chunk in chunks:
        if keep_bytes:
            yield chunk[:keep_bytes]
        keep_bytes -= min(keep_bytes, len(chunk))


def _break(chunks: Iterator[Buffer], after_bytes: int) -> Iterator[Buffer]:
    yield from (data for data in _cut(chunks, after_bytes) if data)
    raise RetryableError("store.unavailable", "connection reset")
