"""Stores for tests: they fail, record, stop or alter calls, or let something happen before them.

Each is a hook around the calls of another store: `DelegatingStore.around`.
"""

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from larder.errors import LarderError, ObjectError, RetryableError, StoreError
from larder.store.base import Buffer, Features, ObjectInfo, Readable, Reader, Store
from larder.store.delegate import DelegatingReadable, DelegatingReader, DelegatingStore

T = TypeVar("T")

WRITES = frozenset({"put", "writer", "write", "commit", "upload", "begin_upload"})
WRITES |= {"abort_uploads", "copy_from", "delete"}
"""The methods of stores and writers that may change what is stored."""


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
class BreakStream:
    """An ``open`` returns some bytes; then the connection breaks."""

    after_bytes: int


Effect = Fail | LoseAnswer | FlipBit | BreakStream


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


def keys_of(store: Readable, prefix: str = "", **more: str) -> list[str]:
    return [info.key for page in store.list(prefix, **more) for info in page]


class FaultyStore(DelegatingStore):
    """Fails on demand.

    ::

        store.add("get", unavailable(), nth=3)              # the third get answers 503, once
        store.add("put", LoseAnswer())                      # the put is done; its answer is lost
        store.add("open", FlipBit(7), key="a.tar")          # reading a.tar returns one wrong bit
    """

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

        ``method`` is as in `DelegatingStore.around`. With a ``key`` (for a listing: a prefix), only
        its calls count.
        """
        with self._lock:
            self._faults.append(_Fault(method, effect, key, nth - 1, times))

    def clear(self) -> None:
        self._faults.clear()

    def _due(self, method: str, key: str) -> Effect | None:
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

    def around(self, method: str, key: str, call: Callable[..., T], **options: Any) -> T:
        effect = self._due(method, key)
        if isinstance(effect, Fail):
            raise effect.error
        result = call(**options)
        if isinstance(effect, LoseAnswer):
            raise RetryableError("store.unavailable", "connection reset")
        if isinstance(effect, FlipBit | BreakStream):
            if method == "open":
                return cast(T, _FaultyReader(cast(Reader, result), effect))
            return cast(T, b"".join(_spoilt([result], effect)))
        return result


class _FaultyReader(DelegatingReader):
    def __init__(self, inner: Reader, effect: FlipBit | BreakStream) -> None:
        super().__init__(inner)
        self._effect = effect

    def __iter__(self) -> Iterator[Buffer]:
        return _spoilt(self.inner, self._effect)


def _spoilt(chunks: Iterable[Any], effect: FlipBit | BreakStream) -> Iterator[Buffer]:
    place = 0
    for chunk in chunks:
        data = bytearray(chunk)
        if isinstance(effect, BreakStream):
            data = data[: effect.after_bytes - place]
        elif place <= effect.bit // 8 < place + len(data):
            data[effect.bit // 8 - place] ^= 1 << effect.bit % 8
        place += len(data)
        if data:
            yield bytes(data)
    if isinstance(effect, BreakStream):
        raise RetryableError("store.unavailable", "connection reset")


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call of a store; ``commit`` is that of a writer, ``key`` may be the prefix of a listing.

    ``size_bytes`` is what was moved: of an ``open`` the whole range, even if it is not read.
    """

    method: str
    key: str
    size_bytes: int = 0


class RecordingStore(DelegatingStore):
    """Records every call, whether it fails or not; a copy by the server only if it copies."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._calls: list[RecordedCall] = []

    @property
    def calls(self) -> tuple[RecordedCall, ...]:
        return tuple(self._calls)

    @property
    def writes(self) -> tuple[RecordedCall, ...]:
        return tuple(call for call in self.calls if call.method in WRITES)

    def count(self, method: str) -> int:
        return sum(call.method == method for call in self.calls)

    def moved_bytes(self, method: str) -> int:
        return sum(call.size_bytes for call in self.calls if call.method == method)

    def forget(self) -> None:
        self._calls.clear()

    def around(self, method: str, key: str, call: Callable[..., T], **options: Any) -> T:
        if method in ("write", "abort"):
            return call(**options)
        size_bytes, copies = 0, True
        try:
            result = call(**options)
            size_bytes, copies = _moved_bytes(method, result, options), result is not None
            return result
        finally:
            if copies or method != "copy_from":
                self._calls.append(RecordedCall(method, key, size_bytes))

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        """Recorded when the first page is requested."""
        self._calls.append(RecordedCall("list", prefix))
        yield from self.inner.list(prefix, start_after=start_after)


class Recorder:
    """Records every store that a run opens: an argument of `tests.support.runs.between`."""

    def __init__(self) -> None:
        self.stores: list[RecordingStore] = []

    def __call__(self, store: Store) -> Store:
        self.stores.append(RecordingStore(store))
        return self.stores[-1]

    @property
    def calls(self) -> list[RecordedCall]:
        return [call for store in self.stores for call in store.calls]

    @property
    def writes(self) -> list[RecordedCall]:
        return [call for store in self.stores for call in store.writes]

    def keys(self, *methods: str) -> list[str]:
        return [call.key for call in self.calls if call.method in methods]


def _moved_bytes(method: str, result: object, options: dict[str, Any]) -> int:
    if isinstance(result, ObjectInfo):
        return result.size_bytes if method in WRITES else 0
    if isinstance(result, bytes):
        return len(result)
    if method != "open":
        return 0
    rest = cast(Reader, result).info.size_bytes - int(options.get("offset", 0))
    length: int | None = options.get("length")
    return rest if length is None else min(length, rest)


class NoGets(DelegatingReadable):
    """Nothing above so many bytes may be held in memory completely."""

    most_bytes = 1 << 20

    def around(self, method: str, key: str, call: Callable[..., T], **options: Any) -> T:
        assert method != "get" or options["length"] <= self.most_bytes, f"{key} is read at once"
        return call(**options)


class Meanwhile:
    """What happens before which calls, of all stores that share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acts: list[tuple[str, str, Callable[[], object]]] = []

    def before(self, method: str, key: str, act: Callable[[], object], *, times: int = 1) -> None:
        """Plan what happens before the next ``times`` calls; their callers wait for it.

        ``method`` is as in `DelegatingStore.around`, ``key`` a piece of the key, or of the prefix
        that is listed.
        """
        with self._lock:
            self._acts += [(method, key, act)] * times

    @property
    def waiting(self) -> int:
        """Number of acts that have not happened yet."""
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

    def around(self, method: str, key: str, call: Callable[..., T], **options: Any) -> T:
        self._meanwhile.call(method, key)
        return call(**options)


class Stopped(BaseException):
    """The process was killed here: not an `Exception`, so that nobody handles it."""


class Stop:
    """Counts the writes of all stores that share it, and stops all of them at one write.

    From then on every write stops, in any thread: a dead process writes nothing. ``after`` is the
    number of writes that are done first; None never stops.
    """

    def __init__(self, after: int | None = None) -> None:
        self.after = after
        self.writes: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    @property
    def stopped(self) -> bool:
        with self._lock:
            return self.after is not None and len(self.writes) > self.after

    def write(self, method: str, key: str, call: Callable[[], T]) -> T:
        """Make a call that changes a store, or raise `Stopped`."""
        with self._lock:
            self.writes.append((method, key))
            if self.after is not None and len(self.writes) > self.after:
                raise Stopped(f"{method} {key}")
            return call()


class Signal(Stop):
    """Sends its own process a signal right before a write, counted from 1; 0 never does."""

    def __init__(self, at: int, number: int) -> None:
        super().__init__()
        self.at, self.number = at, number

    def write(self, method: str, key: str, call: Callable[[], T]) -> T:
        with self._lock:
            self.writes.append((method, key))
            if len(self.writes) == self.at:
                os.kill(os.getpid(), self.number)
        return call()


class KeyStop(Stop):
    """Stops right before the first write of a key that ends so."""

    def __init__(self, end: str) -> None:
        super().__init__()
        self.end = end

    def write(self, method: str, key: str, call: Callable[[], T]) -> T:
        if key.endswith(self.end) and self.after is None:
            self.after = len(self.writes)
        return super().write(method, key, call)


class StoppingStore(DelegatingStore):
    """Stops at a chosen write, like a process that is killed there; it does not even clean up."""

    def __init__(self, inner: Store, stop: Stop) -> None:
        super().__init__(inner)
        self.stop = stop

    def around(self, method: str, key: str, call: Callable[..., T], **options: Any) -> T:
        if method == "abort" and self.stop.stopped:
            return cast(T, None)
        if method in WRITES:
            return self.stop.write(method, key, lambda: call(**options))
        return call(**options)


class UnconditionalStore(DelegatingStore):
    """A put overwrites whatever is there, as on some servers that speak S3.

    ``if_absent`` and ``if_match``: whether these conditions are kept; one that is not is ignored,
    or refused if ``refuses``.
    """

    def __init__(
        self,
        inner: Store,
        *,
        if_absent: bool = False,
        if_match: bool = False,
        refuses: bool = False,
    ) -> None:
        super().__init__(inner)
        self._keeps = {"if_absent": if_absent, "if_match": if_match}
        self._refuses = refuses

    def around(self, method: str, key: str, call: Callable[..., T], **options: Any) -> T:
        for condition, kept in self._keeps.items():
            if method == "put" and not kept and options.pop(condition, None) and self._refuses:
                message = "the store answers 501 NotImplemented"
                raise StoreError("store.refused", message, where=self.url)
        return call(**options)


class EncryptedStore(DelegatingStore):
    """Etags look like an MD5 but are not, as in S3 with SSE-KMS: those whose key is picked."""

    def __init__(self, inner: Store, encrypted: Callable[[str], bool] = lambda key: True) -> None:
        super().__init__(inner)
        self._encrypted = encrypted

    @property
    def features(self) -> Features:
        """As in the wrapped store, but copies would have the wrong etags."""
        return replace(self.inner.features, place=None)

    def around(self, method: str, key: str, call: Callable[..., T], **options: Any) -> T:
        if options.get("if_match") is not None:
            info = self.inner.head(key)
            if self._shown(info).etag == options["if_match"]:
                options["if_match"] = info.etag
        result: Any = call(**options)
        if isinstance(result, ObjectInfo):
            result = self._shown(result)
        elif method == "list" and result:
            result = [self._shown(info) for info in result]
        elif method == "open":
            result = DelegatingReader(result, self._shown(result.info))
        return cast(T, result)

    def _shown(self, info: ObjectInfo) -> ObjectInfo:
        if not self._encrypted(info.key):
            return info
        other = hashlib.md5(b"encrypted " + info.etag.encode())
        return info._replace(etag=other.hexdigest())


class LosingStore(DelegatingStore):
    """Acknowledges every write, and of one object keeps only so many bytes; None: nothing of it."""

    def __init__(
        self, inner: Store, is_lost: Callable[[str], bool], kept_bytes: int | None
    ) -> None:
        super().__init__(inner)
        self._is_lost = is_lost
        self._kept_bytes = kept_bytes

    def around(self, method: str, key: str, call: Callable[..., T], **options: Any) -> T:
        result = call(**options)
        if method in ("put", "commit", "upload") and self._is_lost(key):
            data = self.inner.get(key)
            self.inner.delete(key)
            if self._kept_bytes is not None:
                self.inner.put(key, data[: self._kept_bytes])
        return result
