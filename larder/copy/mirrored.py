"""The mirror, read as if it were the source: returns what was copied, or raises an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import google_crc32c

from larder.copy.copies import Copies, KnownCopy
from larder.errors import NotFoundError, ObjectError, PreconditionError
from larder.manifest.crc import format_crc32c
from larder.store import object_url
from larder.store.base import Buffer, Features, ObjectInfo, Readable, Reader
from larder.store.delegate import DelegatingReader


class Mirror(Readable):
    """Reads copies under the etags of their sources, and checks their content.

    Something else may write to the mirror at the same time, such as a run for another state of the
    source. So every object that is read completely is compared with its checksum; an object without
    one is read on the condition that its etag is still the recorded one. Ranges are not checked.
    """

    def __init__(self, store: Readable, copies: Copies) -> None:
        self._store = store
        self._copies = copies

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def features(self) -> Features:
        return replace(self._store.features, etag_is_md5=False, place=None)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        for page in self._store.list(prefix, start_after=start_after):
            copies = [
                replace(info, etag=copy.etag)
                for info in page
                if (copy := self._copies.get(info.key)) is not None
            ]
            if copies:
                yield copies

    def head(self, key: str) -> ObjectInfo:
        return replace(self._store.head(key), etag=self._copy(key, None).etag)

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        _, etag, checksum = self._copy(key, if_match)
        condition = etag if checksum is None else None
        data = self._store.get(key, offset=offset, length=length, if_match=condition)
        if offset == 0 and length is None:
            self._compare(key, checksum, google_crc32c.value(data))
        return data

    def get_each(self, objects: Iterable[tuple[str, int, str]]) -> Sequence[bytes]:
        objects = list(objects)
        copies = [self._copy(key, etag or None) for key, _, etag in objects]
        wanted = [
            (key, size_bytes, copy.mirror_etag)
            for (key, size_bytes, _), copy in zip(objects, copies, strict=True)
        ]
        try:
            found = self._store.get_each(wanted)
        except ObjectError:  # perhaps the same bytes were written again
            return super().get_each(objects)
        for (key, _, _), copy, data in zip(objects, copies, found, strict=True):
            self._compare(key, copy.checksum, google_crc32c.value(data))
        return found

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        """The reader of a complete object raises an error after its last byte if it differs."""
        _, etag, checksum = self._copy(key, if_match)
        condition = etag if checksum is None else None
        reader = self._store.open(key, offset=offset, length=length, if_match=condition)
        return _CheckedReader(self, reader) if offset == 0 and length is None else reader

    def check(self, key: str, crc32c: int) -> None:
        """Compare the content of an object with what was copied (``object.mismatch``)."""
        self._compare(key, self._copy(key, None).checksum, crc32c)

    def _compare(self, key: str, wanted: str | None, crc32c: int) -> None:
        if wanted is not None and format_crc32c(crc32c) != wanted:
            raise ObjectError(
                "object.mismatch",
                f"the mirror has {format_crc32c(crc32c)} instead of {wanted}",
                where=object_url(self._store.url, key),
                hint="something else writes to it, or its disk is failing; delete it and run again",
            )

    def _copy(self, key: str, if_match: str | None) -> KnownCopy:
        found = self._copies.get(key)
        where = object_url(self._store.url, key)
        if found is None:
            raise NotFoundError("object.missing", "it was not copied", where=where)
        if if_match is not None and if_match != found.etag:
            message = "the copy is of another state of its source"
            raise PreconditionError("object.changed", message, where=where, hint="run again")
        return found


class _CheckedReader(DelegatingReader):
    def __init__(self, mirror: Mirror, inner: Reader) -> None:
        super().__init__(inner)
        self._mirror = mirror

    def __iter__(self) -> Iterator[Buffer]:
        crc = 0
        for buffer in self.inner:
            crc = google_crc32c.extend(crc, bytes(buffer))
            yield buffer
        self._mirror.check(self.info.key, crc)
