"""A store whose etags look like an MD5 but are not, as in S3 with SSE-KMS."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from larder.store.base import Buffer, Features, ObjectInfo, Reader, Store
from larder.store.delegate import DelegatingReader, DelegatingStore

T = TypeVar("T")


class EncryptedStore(DelegatingStore):
    """Forwards calls; objects have other etags: all, or those whose key ``encrypted`` picks."""

    def __init__(self, inner: Store, encrypted: Callable[[str], bool] = lambda key: True) -> None:
        super().__init__(inner)
        self._encrypted = encrypted

    @property
    def features(self) -> Features:
        """As in the wrapped store, but copies would have the wrong etags."""
        return replace(self.inner.features, place=None)

    def around(self, method: str, key: str, call: Callable[[], T]) -> T:
        return self._shown(call())

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        for page in self.inner.list(prefix, start_after=start_after):
            yield [self._shown(info) for info in page]

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        condition = self._condition(key, if_match)
        reader = self.inner.open(key, offset=offset, length=length, if_match=condition)
        return DelegatingReader(reader, self._shown(reader.info))

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        condition = self._condition(key, if_match)
        return self.inner.get(key, offset=offset, length=length, if_match=condition)

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
        condition = self._condition(key, if_match)
        return super().put(key, data, if_absent=if_absent, if_match=condition, like=like, sync=sync)

    def _shown(self, info: T) -> T:
        if not (isinstance(info, ObjectInfo) and self._encrypted(info.key)):
            return info
        other = hashlib.md5(b"encrypted " + info.etag.encode(), usedforsecurity=False)
        return replace(info, etag=other.hexdigest())

    def _condition(self, key: str, if_match: str | None) -> str | None:
        if if_match is None:
            return None
        info = self.inner.head(key)
        return info.etag if self._shown(info).etag == if_match else if_match
