"""The one base of the stores that stand in front of another: every call goes on to that one.

A new method of `larder.store.base.Store` is added to `DelegatingStore`, and every wrapper has it:
what a wrapper does about all calls alike (repeat, note, fail, stop) is its `around`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from larder.store.base import Buffer, Features, ObjectInfo, Reader, Store, Writer

__all__ = ["WRITES", "DelegatingReader", "DelegatingStore", "DelegatingWriter"]

T = TypeVar("T")

WRITES = frozenset({"put", "writer", "write", "commit", "upload", "delete"})
"""The methods of stores and writers that may change what is stored."""


class DelegatingStore(Store):
    """Passes every call on.

    Args:
        inner: The store that is called.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def around(self, method: str, key: str, call: Callable[[], T]) -> T:
        """Make one call of the inner store.

        Args:
            method: Name of the method: of `Store`, or ``write`` or ``commit`` of a `Writer`;
                ``list`` for each page.
            key: The object's, or the prefix that is listed.
            call: Makes the call.
        """
        del method, key
        return call()

    @property
    def url(self) -> str:
        """The inner store's."""
        return self.inner.url

    @property
    def features(self) -> Features:
        """The inner store's."""
        return self.inner.features

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        """See `larder.store.base.Readable.list`."""
        pages = self.inner.list(prefix, start_after=start_after)
        while page := self.around("list", prefix, lambda: next(pages, None)):
            yield page

    def head(self, key: str) -> ObjectInfo:
        """See `larder.store.base.Readable.head`."""
        return self.around("head", key, lambda: self.inner.head(key))

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        """See `larder.store.base.Readable.open`."""
        return self.around(
            "open",
            key,
            lambda: self.inner.open(key, offset=offset, length=length, if_match=if_match),
        )

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        """See `larder.store.base.Readable.get`."""
        return self.around(
            "get", key, lambda: self.inner.get(key, offset=offset, length=length, if_match=if_match)
        )

    def put(
        self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None
    ) -> ObjectInfo:
        """See `larder.store.base.Store.put`."""
        return self.around(
            "put", key, lambda: self.inner.put(key, data, if_absent=if_absent, if_match=if_match)
        )

    def writer(self, key: str) -> Writer:
        """See `larder.store.base.Store.writer`."""
        inner = self.around("writer", key, lambda: self.inner.writer(key))
        return DelegatingWriter(self, key, inner)

    def upload(self, key: str, path: Path) -> ObjectInfo:
        """See `larder.store.base.Store.upload`."""
        return self.around("upload", key, lambda: self.inner.upload(key, path))

    def delete(self, key: str) -> None:
        """See `larder.store.base.Store.delete`."""
        self.around("delete", key, lambda: self.inner.delete(key))


class DelegatingReader(Reader):
    """Passes the bytes of another reader on.

    Args:
        inner: The reader.
        info: What it tells of the object, if not what the other does.
    """

    def __init__(self, inner: Reader, info: ObjectInfo | None = None) -> None:
        self.inner = inner
        self.info = info or inner.info

    def __iter__(self) -> Iterator[Buffer]:
        """The bytes."""
        return iter(self.inner)

    def close(self) -> None:
        """Close the other reader."""
        self.inner.close()


class DelegatingWriter(Writer):
    """Writes to another writer, by way of the `around` of a store.

    Args:
        store: Whose writer this is.
        key: The object's.
        inner: The writer.
    """

    def __init__(self, store: DelegatingStore, key: str, inner: Writer) -> None:
        self.store = store
        self.key = key
        self.inner = inner

    def write(self, data: Buffer) -> None:
        """Append bytes."""
        self.store.around("write", self.key, lambda: self.inner.write(data))

    def commit(self) -> ObjectInfo:
        """Make the object visible."""
        return self.store.around("commit", self.key, self.inner.commit)

    def abort(self) -> None:
        """Throw away what was written."""
        self.inner.abort()
