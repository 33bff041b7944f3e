"""A store that does not keep the conditions of writes, as some servers that speak S3 do not.

::

    store = UnconditionalStore(MemoryStore("local"))                  # ignores them, like rclone
    store = UnconditionalStore(MemoryStore("local"), refuses=True)    # answers 501 to them
"""

from __future__ import annotations

from dataclasses import replace

from larder.errors import StoreError
from larder.store.base import Buffer, Features, ObjectInfo, Store
from larder.store.delegate import DelegatingStore


class UnconditionalStore(DelegatingStore):
    """Forwards every call; a put overwrites whatever is there.

    ``if_absent`` and ``if_match``: whether these conditions are kept; one that is not is ignored,
    or refused if ``refuses``. ``says``: whether the store knows that it does not keep ``if_match``.
    """

    def __init__(
        self,
        inner: Store,
        *,
        if_absent: bool = False,
        if_match: bool = False,
        refuses: bool = False,
        says: bool = False,
    ) -> None:
        super().__init__(inner)
        self._if_absent = if_absent
        self._if_match = if_match
        self._refuses = refuses
        self._says = says

    @property
    def features(self) -> Features:
        features = self.inner.features
        return replace(features, replace_if_match=self._if_match) if self._says else features

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
        ignored = (if_absent and not self._if_absent) or (if_match and not self._if_match)
        if ignored and self._refuses:
            message = "the store answers 501 NotImplemented"
            raise StoreError("store.refused", message, where=self.url)
        return super().put(
            key,
            data,
            if_absent=if_absent and self._if_absent,
            if_match=if_match if self._if_match else None,
            like=like,
            md5=md5,
            sync=sync,
        )
