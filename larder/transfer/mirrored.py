"""The mirror, read as if it were the source: what comes is what was copied, or an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import google_crc32c
import pyarrow as pa

from larder.errors import NotFoundError, ObjectError, PreconditionError
from larder.store import object_url
from larder.store.base import Buffer, Features, ObjectInfo, Readable, Reader
from larder.store.delegate import DelegatingReader
from larder.transfer.copy import format_crc32c

__all__ = ["Mirror", "MirroredObject", "mirrored_objects"]


class MirroredObject(NamedTuple):
    """A copy: its length, the etag of its source, its own, and the checksum of the content.

    Without a checksum the copy was known by an etag that is the md5 of the content.
    """

    size_bytes: int
    source_etag: str
    etag: str
    checksum: str | None


def mirrored_objects(batches: Iterable[pa.RecordBatch]) -> dict[str, MirroredObject]:
    """The copies that rows of `larder.transfer.align.MIRRORED` name, by key."""
    found: dict[str, MirroredObject] = {}
    for batch in batches:
        parts = batch.column("parts").flatten()
        # By way of numpy: ten times as fast as to_pylist().
        keys, *columns = (
            parts.field(name).to_numpy(zero_copy_only=False).tolist()
            for name in ("key", *MirroredObject._fields)
        )
        found |= zip(keys, map(MirroredObject, *columns), strict=True)
    return found


class Mirror(Readable):
    """Reads copies under the etags of their sources, and checks their content.

    Something else may write to the mirror at the same time: a run of another state of the source.
    So every object that is read whole is held against its checksum; one that has none is read on
    the condition that its etag is still the one recorded. A range is not checked by itself.

    Args:
        store: Holds the copies.
        objects: What was copied, by key.
    """

    def __init__(self, store: Readable, objects: dict[str, MirroredObject]) -> None:
        self._store = store
        self._objects = objects

    @property
    def url(self) -> str:
        """That of the store."""
        return self._store.url

    @property
    def features(self) -> Features:
        """Those of the store, but that the etags are those of the sources."""
        return replace(self._store.features, etag_is_md5=False)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        """The copies that are there, with the etags of their sources; nothing else."""
        for page in self._store.list(prefix, start_after=start_after):
            copies = [
                replace(info, etag=self._objects[info.key].source_etag)
                for info in page
                if info.key in self._objects
            ]
            if copies:
                yield copies

    def head(self, key: str) -> ObjectInfo:
        """The copy, with the etag of its source.

        Raises:
            NotFoundError: It was not copied, or is not there any more.
        """
        return replace(self._store.head(key), etag=self._object(key, None).source_etag)

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        """See `larder.store.base.Readable.get`; ``if_match`` is the etag of the source."""
        found = self._object(key, if_match)
        condition = found.etag if found.checksum is None else None
        data = self._store.get(key, offset=offset, length=length, if_match=condition)
        if offset == 0 and length is None:
            self.check(key, google_crc32c.value(data))
        return data

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        """See `larder.store.base.Readable.open`; ``if_match`` is the etag of the source.

        The reader of a whole object raises after its last byte if the content is not that copied.
        """
        found = self._object(key, if_match)
        condition = found.etag if found.checksum is None else None
        reader = self._store.open(key, offset=offset, length=length, if_match=condition)
        return _CheckedReader(self, reader) if offset == 0 and length is None else reader

    def check(self, key: str, crc32c: int) -> None:
        """Hold the content of an object against what was copied.

        Raises:
            ObjectError: ``object.mismatch``.
        """
        wanted = self._objects[key].checksum
        if wanted is not None and format_crc32c(crc32c) != wanted:
            raise ObjectError(
                "object.mismatch",
                f"the mirror gives {format_crc32c(crc32c)}, {wanted} was copied to it",
                where=object_url(self._store.url, key),
                hint="something else writes to it, or its disk fails; delete it and run again",
            )

    def _object(self, key: str, if_match: str | None) -> MirroredObject:
        found = self._objects.get(key)
        where = object_url(self._store.url, key)
        if found is None:
            raise NotFoundError("object.missing", "it was not copied", where=where)
        if if_match is not None and if_match != found.source_etag:
            message = "the copy is of another state of its source"
            raise PreconditionError("object.changed", message, where=where, hint="run again")
        return found


class _CheckedReader(DelegatingReader):
    """A reader that sums what passes."""

    def __init__(self, mirror: Mirror, inner: Reader) -> None:
        super().__init__(inner)
        self._mirror = mirror

    def __iter__(self) -> Iterator[Buffer]:
        crc = 0
        for buffer in self.inner:
            crc = google_crc32c.extend(crc, bytes(buffer))
            yield buffer
        self._mirror.check(self.info.key, crc)
