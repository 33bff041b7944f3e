"""Stores that count the bytes that they move, and one whose objects are made up."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.growing.invented import Invented, Made
from larder.errors import NotFoundError
from larder.store import ObjectInfo, Store
from larder.store.base import Buffer, Features, Reader, Writer
from larder.store.delegate import BytesReader, DelegatingReader, DelegatingStore, DelegatingWriter

_PAGE = 1_000
_MODIFIED_US = 1_700_000_000_000_000


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes that were moved, by what they are: shards, caches, manifests, documents, work, source.

    ``written`` are into the storage, ``read`` from the storage and the source.
    """

    written: Mapping[str, int] = field(default_factory=dict)
    read: Mapping[str, int] = field(default_factory=dict)


class Tally:
    """Adds up bytes; may be used from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._written: Counter[str] = Counter()
        self._read: Counter[str] = Counter()

    def write(self, what: str, size_bytes: int) -> None:
        with self._lock:
            self._written[what] += size_bytes

    def read(self, what: str, size_bytes: int) -> None:
        with self._lock:
            self._read[what] += size_bytes

    def moved(self) -> Moved:
        """All bytes so far."""
        with self._lock:
            return Moved(dict(self._written), dict(self._read))


def purpose(key: str) -> str:
    """What an object of the storage is for, by its key."""
    if "/work/" in key or key.startswith("work/"):
        return "work"
    if "/shards/" in key:
        return "shards"
    if key.endswith((".parquet", ".npz")):
        return "manifests"
    if key.endswith(".mdb"):
        return "caches"
    return "documents"


class CountingStore(DelegatingStore):
    """Forwards every call, and adds up the bytes that it moves.

    Unlike `tests.support.stores` it keeps no list of calls, which would be most of the memory of
    a run of a million samples. Of the ``source``, all is read for the same purpose.
    """

    def __init__(self, inner: Store, tally: Tally, *, source: bool) -> None:
        super().__init__(inner)
        self._tally = tally
        self._source = source

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        reader = self.inner.open(key, offset=offset, length=length, if_match=if_match)
        return CountingReader(reader, self._tally, self._purpose(key))

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        data = self.inner.get(key, offset=offset, length=length, if_match=if_match)
        self._tally.read(self._purpose(key), len(data))
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
        done = self.inner.put(
            key, data, if_absent=if_absent, if_match=if_match, like=like, md5=md5, sync=sync
        )
        self._tally.write(self._purpose(key), len(data))
        return done

    def upload(self, key: str, path: Path) -> ObjectInfo:
        done = self.inner.upload(key, path)
        self._tally.write(self._purpose(key), done.size_bytes)
        return done

    def writer(self, key: str, *, like: ObjectInfo | None = None, sync: bool = True) -> Writer:
        return CountingWriter(self, key, self.inner.writer(key, like=like, sync=sync), self._tally)

    def _purpose(self, key: str) -> str:
        return "source" if self._source else purpose(key)


class CountingReader(DelegatingReader):
    """Counts the bytes that are taken from it."""

    def __init__(self, inner: Reader, tally: Tally, what: str) -> None:
        super().__init__(inner)
        self._tally = tally
        self._what = what

    def __iter__(self) -> Iterator[Buffer]:
        for buffer in self.inner:
            self._tally.read(self._what, len(buffer))
            yield buffer


class CountingWriter(DelegatingWriter):
    """Counts an object once it is committed."""

    def __init__(self, store: CountingStore, key: str, inner: Writer, tally: Tally) -> None:
        super().__init__(store, key, inner)
        self._tally = tally

    def commit(self) -> ObjectInfo:
        done = self.inner.commit()
        self._tally.write(purpose(self.key), done.size_bytes)
        return done

    def write(self, data: Buffer) -> None:
        self.inner.write(data)


class InventingStore(DelegatingStore):
    """A source whose objects are made up; nothing is written to it."""

    def __init__(self, inner: Store, invented: Invented) -> None:
        super().__init__(inner)
        self._invented = invented

    @property
    def features(self) -> Features:
        """None: no paths, and etags that are not MD5."""
        return Features(etag_is_md5=False)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        assert not prefix, prefix
        assert not start_after, start_after
        page: list[ObjectInfo] = []
        for made in self._invented:
            page.append(_info(made))
            if len(page) == _PAGE:
                yield page
                page = []
        if page:
            yield page

    def head(self, key: str) -> ObjectInfo:
        return _info(self._find(key))

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        made = self._find(key)
        assert if_match in (None, made.etag), if_match
        end = None if length is None else offset + length
        return BytesReader(_info(made), made.content[offset:end])

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        with self.open(key, offset=offset, length=length, if_match=if_match) as reader:
            return b"".join(reader)

    def _find(self, key: str) -> Made:
        try:
            return self._invented.find(key)
        except (KeyError, ValueError):
            raise NotFoundError("object.missing", "no such object", where=self.url + key) from None


def _info(made: Made) -> ObjectInfo:
    return ObjectInfo(made.key, made.size_bytes, made.etag, _MODIFIED_US)
