"""A store whose etags look like an md5 and are none, as those of S3 with SSE-KMS."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType

from larder.store.base import Buffer, Features, ObjectInfo, Reader, Store

__all__ = ["EncryptedReader", "EncryptedStore"]


class EncryptedStore:
    """Passes reading calls on; the etags of encrypted objects are others. It cannot be written.

    Args:
        inner: The store that is called.
        encrypted: Whether the object of a key is; all are unless told otherwise.
    """

    def __init__(self, inner: Store, encrypted: Callable[[str], bool] = lambda key: True) -> None:
        self.inner = inner
        self._encrypted = encrypted

    @property
    def url(self) -> str:
        """The inner store's."""
        return self.inner.url

    @property
    def features(self) -> Features:
        """The inner store's."""
        return self.inner.features

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        """See `larder.store.base.Store.list`."""
        for page in self.inner.list(prefix, start_after=start_after):
            yield [self._shown(info) for info in page]

    def head(self, key: str) -> ObjectInfo:
        """See `larder.store.base.Store.head`."""
        return self._shown(self.inner.head(key))

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> EncryptedReader:
        """See `larder.store.base.Store.open`."""
        condition = self._condition(key, if_match)
        reader = self.inner.open(key, offset=offset, length=length, if_match=condition)
        return EncryptedReader(reader, self._shown(reader.info))

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        """See `larder.store.base.Store.get`."""
        condition = self._condition(key, if_match)
        return self.inner.get(key, offset=offset, length=length, if_match=condition)

    def close(self) -> None:
        """Close the inner store."""
        self.inner.close()

    def _shown(self, info: ObjectInfo) -> ObjectInfo:
        if not self._encrypted(info.key):
            return info
        other = hashlib.md5(b"encrypted " + info.etag.encode(), usedforsecurity=False)
        return replace(info, etag=other.hexdigest())

    def _condition(self, key: str, if_match: str | None) -> str | None:
        if if_match is None:
            return None
        info = self.inner.head(key)
        return info.etag if self._shown(info).etag == if_match else if_match


class EncryptedReader(AbstractContextManager["EncryptedReader"]):
    """A reader that tells of another etag."""

    def __init__(self, inner: Reader, info: ObjectInfo) -> None:
        self.info = info
        self._inner = inner

    def __iter__(self) -> Iterator[Buffer]:
        """The bytes."""
        return iter(self._inner)

    def close(self) -> None:
        """Close the inner reader."""
        self._inner.close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
