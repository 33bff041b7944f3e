"""Reads derived objects: ranges of objects that are listed as objects of their own.

Their etags, described in `larder.manifest.extents`, identify them, so ``if_match`` is required. All
other calls go to the wrapped store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from larder.errors import ObjectError
from larder.manifest.extents import Extent, parse_extent
from larder.store.base import (
    AHEAD,
    Buffer,
    Contents,
    ObjectInfo,
    Readable,
    Reader,
    ReadOptions,
    span_bytes,
)
from larder.store.delegate import BytesReader, DelegatingReadable, DelegatingReader
from larder.store.keys import object_url

if TYPE_CHECKING:
    from typing import Unpack


class DerivedObjects(DelegatingReadable):
    """A source with the members and rows of its containers.

    A derived object is read from its container on the condition that the container has not changed.
    `head` cannot describe a derived object, as it gets no etag, and `list` does not list it.
    ``open_containers`` opens the store with Larder's own containers, by name, at the first read.
    """

    def __init__(self, inner: Readable, open_containers: Callable[[], Readable]) -> None:
        super().__init__(inner)
        self._open_containers = open_containers

    @cached_property
    def _containers(self) -> Readable:
        return self._open_containers()

    def get(self, key: str, **options: Unpack[ReadOptions]) -> bytes:
        if parse_extent(options.get("if_match")) is None:
            return self.inner.get(key, **options)
        with self.open(key, **options) as reader:
            return b"".join(reader)

    def get_each(self, objects: Iterable[tuple[str, int, str]], ahead: int = AHEAD) -> Contents:
        objects = list(objects)
        if any(parse_extent(etag) for _, _, etag in objects):
            return super().get_each(objects)
        return self.inner.get_each(objects, ahead)

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        """Open an object; a container with another etag than indexed is ``object.changed``."""
        extent = parse_extent(if_match)
        if extent is None:
            return self.inner.open(key, offset=offset, length=length, if_match=if_match)
        info = ObjectInfo(key, extent.length, if_match or "", 0)
        wanted = span_bytes(extent.length, offset, length)
        if not wanted:
            return BytesReader(info, b"")
        store = self._containers if extent.name else self.inner
        container = extent.container(key)
        reader = store.open(
            container, offset=extent.offset + offset, length=wanted, if_match=extent.etag or None
        )
        return _ExtentReader(reader, info, wanted, _too_short(store, container, extent))


def _too_short(store: Readable, container: str, extent: Extent) -> ObjectError:
    message = f"it ends before byte {extent.offset + extent.length}, up to which it was indexed"
    return ObjectError("object.truncated", message, where=object_url(store.url, container))


class _ExtentReader(DelegatingReader):
    def __init__(self, inner: Reader, info: ObjectInfo, wanted: int, too_short: ObjectError):
        super().__init__(inner, info)
        self._wanted = wanted
        self._too_short = too_short

    def __iter__(self) -> Iterator[Buffer]:
        left = self._wanted
        for buffer in self.inner:
            left -= memoryview(buffer).nbytes
            yield buffer
        if left:
            raise self._too_short
