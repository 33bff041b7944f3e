"""The bases of the stores that wrap another store: every call is forwarded.

A new method of `larder.store.base.Store` is added to `DelegatingStore`, or of
`larder.store.base.Readable` to `DelegatingReadable`, and all wrappers have it.
What a wrapper does around every call (repeat, record, fail, stop) is in its `around`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from larder.store.base import (
    BegunUpload,
    Buffer,
    Features,
    ObjectInfo,
    Readable,
    Reader,
    Store,
    Upload,
    Writer,
)

T = TypeVar("T")

WRITES = frozenset(
    {
        "put",
        "writer",
        "write",
        "commit",
        "upload",
        "begin_upload",
        "abort_uploads",
        "copy_from",
        "delete",
    }
)
"""The methods of stores and writers that may change what is stored."""


class DelegatingReadable(Readable):
    """Forwards every call that reads."""

    def __init__(self, inner: Readable) -> None:
        self.inner = inner

    def around(self, method: str, key: str, call: Callable[[], T]) -> T:
        """Make one call of the inner store.

        ``method`` is of `Store`, or ``write`` or ``commit`` of a `Writer`; ``list`` for each page,
        with the prefix as ``key``.
        """
        del method, key
        return call()

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def features(self) -> Features:
        return self.inner.features

    def region(self) -> str:
        return self.around("region", "", self.inner.region)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        pages = self.inner.list(prefix, start_after=start_after)
        while page := self.around("list", prefix, lambda: next(pages, None)):
            yield page

    def head(self, key: str) -> ObjectInfo:
        return self.around("head", key, lambda: self.inner.head(key))

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        return self.around(
            "open",
            key,
            lambda: self.inner.open(key, offset=offset, length=length, if_match=if_match),
        )

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        return self.around(
            "get", key, lambda: self.inner.get(key, offset=offset, length=length, if_match=if_match)
        )


class DelegatingStore(DelegatingReadable, Store):
    """Forwards every call."""

    inner: Store

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)

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
        return self.around(
            "put",
            key,
            lambda: self.inner.put(
                key, data, if_absent=if_absent, if_match=if_match, like=like, md5=md5, sync=sync
            ),
        )

    def writer(self, key: str, *, like: ObjectInfo | None = None, sync: bool = True) -> Writer:
        inner = self.around("writer", key, lambda: self.inner.writer(key, like=like, sync=sync))
        return DelegatingWriter(self, key, inner)

    def copy_from(self, source: Readable, info: ObjectInfo, key: str) -> ObjectInfo | None:
        return self.around("copy_from", key, lambda: self.inner.copy_from(source, info, key))

    def begin_upload(
        self,
        key: str,
        *,
        like: ObjectInfo | None = None,
        md5: str | None = None,
        resume: str | None = None,
    ) -> Upload | None:
        return self.around(
            "begin_upload",
            key,
            lambda: self.inner.begin_upload(key, like=like, md5=md5, resume=resume),
        )

    def abort_uploads(self, prefix: str, orphaned: Callable[[BegunUpload], bool]) -> int:
        return self.around(
            "abort_uploads",
            prefix,
            lambda: self.inner.abort_uploads(prefix, orphaned),
        )

    def sync(self) -> None:
        self.around("sync", "", self.inner.sync)

    def upload(self, key: str, path: Path) -> ObjectInfo:
        return self.around("upload", key, lambda: self.inner.upload(key, path))

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        self.around("delete", key, lambda: self.inner.delete(key, if_match=if_match))


class DelegatingReader(Reader):
    """Forwards the bytes of another reader; ``info`` may describe the object differently."""

    def __init__(self, inner: Reader, info: ObjectInfo | None = None) -> None:
        self.inner = inner
        self.info = info or inner.info

    def __iter__(self) -> Iterator[Buffer]:
        return iter(self.inner)

    def close(self) -> None:
        self.inner.close()


class DelegatingWriter(Writer):
    """Forwards to another writer, through the `around` of a store."""

    def __init__(self, store: DelegatingStore, key: str, inner: Writer) -> None:
        self.store = store
        self.key = key
        self.inner = inner

    def write(self, data: Buffer) -> None:
        self.store.around("write", self.key, lambda: self.inner.write(data))

    def commit(self) -> ObjectInfo:
        return self.store.around("commit", self.key, self.inner.commit)

    def abort(self) -> None:
        self.inner.abort()
