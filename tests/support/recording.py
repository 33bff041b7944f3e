"""A store that records every call, for tests of what is not done: "no write happened"."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from larder.store.base import Buffer, ObjectInfo, Readable, Reader, Store, Writer
from larder.store.delegate import WRITES, DelegatingStore, DelegatingWriter

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call of a store; ``commit`` is that of a writer, ``key`` may be the prefix of a listing.

    The ``size_bytes`` of an ``open`` are the whole range, even if it is not read.
    """

    method: str
    key: str
    size_bytes: int = 0


class RecordingStore(DelegatingStore):
    """Forwards every call and records it, whether it fails or not."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self._calls: list[RecordedCall] = []

    @property
    def calls(self) -> tuple[RecordedCall, ...]:
        with self._lock:
            return tuple(self._calls)

    @property
    def writes(self) -> tuple[RecordedCall, ...]:
        """The calls that could change the store."""
        return tuple(call for call in self.calls if call.method in WRITES)

    def count(self, method: str) -> int:
        return sum(call.method == method for call in self.calls)

    def moved_bytes(self, method: str) -> int:
        return sum(call.size_bytes for call in self.calls if call.method == method)

    def forget(self) -> None:
        with self._lock:
            self._calls.clear()

    def note(self, method: str, key: str, size_bytes: int = 0) -> None:
        with self._lock:
            self._calls.append(RecordedCall(method, key, size_bytes))

    def around(self, method: str, key: str, call: Callable[[], T]) -> T:
        self.note(method, key)
        return call()

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        """Recorded when the first page is requested."""
        self.note("list", prefix)
        yield from self.inner.list(prefix, start_after=start_after)

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        try:
            reader = self.inner.open(key, offset=offset, length=length, if_match=if_match)
        except BaseException:
            self.note("open", key)
            raise
        rest = reader.info.size_bytes - offset
        self.note("open", key, rest if length is None else min(length, rest))
        return reader

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        try:
            data = self.inner.get(key, offset=offset, length=length, if_match=if_match)
        except BaseException:
            self.note("get", key)
            raise
        self.note("get", key, len(data))
        return data

    def put(
        self,
        key: str,
        data: Buffer,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        like: ObjectInfo | None = None,
        md5: str | None = None,
        sync: bool = True,
    ) -> ObjectInfo:
        self.note("put", key, len(data))
        return self.inner.put(
            key, data, if_absent=if_absent, if_match=if_match, like=like, md5=md5, sync=sync
        )

    def writer(
        self, key: str, *, like: ObjectInfo | None = None, sync: bool = True
    ) -> RecordingWriter:
        self.note("writer", key)
        return RecordingWriter(self, key, self.inner.writer(key, like=like, sync=sync))

    def copy_from(self, source: Readable, info: ObjectInfo, key: str) -> ObjectInfo | None:
        """Recorded if it copies."""
        copy = self.inner.copy_from(source, info, key)
        if copy is not None:
            self.note("copy_from", key, info.size_bytes)
        return copy

    def upload(self, key: str, path: Path) -> ObjectInfo:
        self.note("upload", key, path.stat().st_size if path.exists() else 0)
        return self.inner.upload(key, path)


class RecordingWriter(DelegatingWriter):
    """Records a ``commit`` with the number of bytes written."""

    def __init__(self, store: RecordingStore, key: str, inner: Writer) -> None:
        super().__init__(store, key, inner)
        self._recording = store
        self._size_bytes = 0

    def write(self, data: Buffer) -> None:
        self._size_bytes += len(data)
        self.inner.write(data)

    def commit(self) -> ObjectInfo:
        self._recording.note("commit", self.key, self._size_bytes)
        return self.inner.commit()
