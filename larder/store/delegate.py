"""Base classes of store wrappers, which forward every call.

A new method of `larder.store.base` is added here for all wrappers. A wrapper overrides `around` to
repeat, record, fail or stop every call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from larder.store.base import (
    Buffer,
    Features,
    ObjectInfo,
    Readable,
    Reader,
    ReadOptions,
    Store,
    Upload,
    UploadOptions,
    WriteOptions,
    Writer,
)

if TYPE_CHECKING:
    from typing import Unpack

T = TypeVar("T")


class DelegatingReadable(Readable):
    def __init__(self, inner: Readable) -> None:
        self.inner = inner

    def around(self, method: str, key: str, call: Callable[..., T], **options: Any) -> T:
        """Make one call of the inner store, with its options.

        ``method`` is the name of a method of `Store`, or ``write``, ``commit`` or ``abort`` of a
        `Writer`. Each page of a listing is a call of ``list``, with the prefix as ``key``.
        """
        del method, key
        return call(**options)

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
        while page := self.around("list", prefix, partial(next, pages, None)):
            yield page

    def head(self, key: str) -> ObjectInfo:
        return self.around("head", key, partial(self.inner.head, key))

    def open(self, key: str, **options: Unpack[ReadOptions]) -> Reader:
        return self.around("open", key, partial(self.inner.open, key), **options)

    def get(self, key: str, **options: Unpack[ReadOptions]) -> bytes:
        return self.around("get", key, partial(self.inner.get, key), **options)


class DelegatingStore(DelegatingReadable, Store):
    inner: Store

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)

    def put(self, key: str, data: Buffer, **options: Unpack[WriteOptions]) -> ObjectInfo:
        return self.around("put", key, partial(self.inner.put, key, data), **options)

    def writer(self, key: str, *, like: ObjectInfo | None = None, sync: bool = True) -> Writer:
        make = partial(self.inner.writer, key)
        return DelegatingWriter(self, key, self.around("writer", key, make, like=like, sync=sync))

    def copy_from(self, source: Readable, info: ObjectInfo, key: str) -> ObjectInfo | None:
        return self.around("copy_from", key, partial(self.inner.copy_from, source, info, key))

    def begin_upload(self, key: str, **options: Unpack[UploadOptions]) -> Upload | None:
        return self.around("begin_upload", key, partial(self.inner.begin_upload, key), **options)

    def abort_uploads(self, older_seconds: float, kept: Collection[str] = ()) -> int:
        abort = partial(self.inner.abort_uploads, older_seconds, kept)
        return self.around("abort_uploads", "", abort)

    def sync(self) -> None:
        self.around("sync", "", self.inner.sync)

    def upload(self, key: str, path: Path) -> ObjectInfo:
        return self.around("upload", key, partial(self.inner.upload, key, path))

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        self.around("delete", key, partial(self.inner.delete, key), if_match=if_match)


class DelegatingReader(Reader):
    """Forwards the bytes of another reader; ``info`` may describe the object differently."""

    def __init__(self, inner: Reader, info: ObjectInfo | None = None) -> None:
        self.inner = inner
        self.info = info or inner.info

    def __iter__(self) -> Iterator[Buffer]:
        return iter(self.inner)

    def close(self) -> None:
        self.inner.close()


class BytesReader(Reader):
    def __init__(self, info: ObjectInfo, data: Buffer) -> None:
        self.info = info
        self._data = data

    def __iter__(self) -> Iterator[Buffer]:
        return iter((self._data,) if self._data else ())

    def close(self) -> None:
        """Nothing to release."""


class DelegatingWriter(Writer):
    """Forwards every call to another writer, through the `around` of a store."""

    def __init__(self, store: DelegatingStore, key: str, inner: Writer) -> None:
        self.store = store
        self.key = key
        self.inner = inner

    def write(self, data: Buffer) -> None:
        self.store.around("write", self.key, partial(self.inner.write, data))

    def commit(self) -> ObjectInfo:
        return self.store.around("commit", self.key, self.inner.commit)

    def abort(self) -> None:
        self.store.around("abort", self.key, self.inner.abort)
