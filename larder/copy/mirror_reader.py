"""Reads a mirror as if it were the source."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.errors import NotFoundError, ObjectError, PreconditionError, StoreError
from larder.manifest.digest import format_crc32c
from larder.samples.arrow_columns import column_texts
from larder.store import object_url
from larder.store.base import AHEAD, Buffer, Contents, Features, ObjectInfo, Readable, Reader
from larder.store.delegate import DelegatingReadable, DelegatingReader


class Mirror(Readable):
    """Reads copies under the etags of their sources, and checks their content.

    Another program may write to the mirror at the same time, such as a run for another state of the
    source. So a completely read object is compared with its checksum. An object without a checksum
    is read on the condition that its etag is still the recorded one. Ranges are not checked.
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
                info._replace(etag=copy.etag)
                for info in page
                if (copy := self._copies.get(info.key)) is not None
            ]
            if copies:
                yield copies

    def head(self, key: str) -> ObjectInfo:
        return self._store.head(key)._replace(etag=self._copy(key, None).etag)

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        _, etag, checksum = self._copy(key, if_match)
        condition = etag if checksum is None else None
        data = self._store.get(key, offset=offset, length=length, if_match=condition)
        if offset == 0 and length is None:
            self._compare(key, checksum, google_crc32c.value(data))
        return data

    def get_each(self, objects: Iterable[tuple[str, int, str]], ahead: int = AHEAD) -> Contents:
        objects = list(objects)
        copies = [self._copy(key, etag or None) for key, _, etag in objects]
        wanted = [
            (key, size_bytes, copy.mirror_etag)
            for (key, size_bytes, _), copy in zip(objects, copies, strict=True)
        ]
        try:
            contents = list(self._store.get_each(wanted, ahead))
        except ObjectError:  # perhaps the same bytes were written again
            yield from super().get_each(objects)
            return
        for (key, _, _), copy, data in zip(objects, copies, contents, strict=True):
            self._compare(key, copy.checksum, google_crc32c.value(data))
        yield from contents

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        """Open an object; after the last byte, a complete object that differs raises an error."""
        _, etag, checksum = self._copy(key, if_match)
        condition = etag if checksum is None else None
        reader = self._store.open(key, offset=offset, length=length, if_match=condition)
        compare = partial(self._compare, key, checksum)
        return _CheckedReader(reader, compare) if offset == 0 and length is None else reader

    def _compare(self, key: str, wanted: str | None, crc32c: int) -> None:
        if wanted is not None and format_crc32c(crc32c) != wanted:
            raise ObjectError(
                "object.mismatch",
                f"the mirror has {format_crc32c(crc32c)} instead of {wanted}",
                where=object_url(self._store.url, key),
                hint="something else writes to it, or its disk is failing; delete it and run again",
            )

    def _copy(self, key: str, if_match: str | None) -> KnownCopy:
        copy = self._copies.get(key)
        where = object_url(self._store.url, key)
        if copy is None:
            raise NotFoundError("object.missing", "it was not copied", where=where)
        if if_match is not None and if_match != copy.etag:
            message = "the copy is of another state of its source"
            raise PreconditionError("object.changed", message, where=where, hint="run again")
        return copy


class _CheckedReader(DelegatingReader):
    def __init__(self, inner: Reader, compare: Callable[[int], None]) -> None:
        super().__init__(inner)
        self._compare = compare

    def __iter__(self) -> Iterator[Buffer]:
        crc = 0
        for buffer in self.inner:
            crc = google_crc32c.extend(crc, bytes(buffer))
            yield buffer
        self._compare(crc)


_COLUMNS = ("key", "etag", "mirror_etag", "checksum")


class KnownCopy(NamedTuple):
    """A verified copy; ``etag`` is the source's. The checksum is None if an etag that is the MD5 of
    the content identified the copy.
    """

    etag: str
    mirror_etag: str
    checksum: str | None


class Copies:
    """Copies in columns, found by the hashes of their keys. May be read by many threads.

    A copy takes 170 bytes; in a dict it would take three times as much.

    ``rows`` have the columns of OBJECTS that are needed. If an object has several rows, the last
    counts. Rows without a ``mirror_etag`` are skipped.
    """

    def __init__(self, rows: Iterable[pa.RecordBatch]) -> None:
        batches = [
            each.select(_COLUMNS).filter(pc.not_equal(each.column("mirror_etag"), ""))
            for each in rows
        ]
        hashes = np.array(
            [hash(key) for each in batches for key in column_texts(each.column("key"))], np.int64
        )
        order = np.argsort(hashes, kind="stable")
        self._hashes = array("q", hashes[order].tobytes())
        self._rows = array("q", order.tobytes())
        self._columns = [_Texts([each.column(name) for each in batches]) for name in _COLUMNS]

    def get(self, key: str) -> KnownCopy | None:
        wanted = hash(key)
        place = bisect_right(self._hashes, wanted)
        while place and self._hashes[place - 1] == wanted:
            place -= 1
            row = self._rows[place]
            keys, etags, mirror_etags, checksums = self._columns
            if keys.get(row) == key:
                return KnownCopy(etags.get(row), mirror_etags.get(row), checksums.get(row) or None)
        return None


class _Texts:
    """A column of texts, empty for null; Arrow takes three times as long to return a text."""

    def __init__(self, columns: Sequence[pa.StringArray]) -> None:
        column = pa.concat_arrays([pa.array([], pa.string()), *columns])
        _, stops, data = column.buffers()
        self._stops = memoryview(stops).cast("B").cast("i")[column.offset :]
        self._data = memoryview(data or b"")

    def get(self, row: int) -> str:
        return str(self._data[self._stops[row] : self._stops[row + 1]], "utf-8")


T = TypeVar("T")


class Unconditional(DelegatingReadable):
    """A store whose objects are read without a condition on their etags."""

    def around(self, method: str, key: str, call: Callable[..., T], **options: Any) -> T:
        options.pop("if_match", None)
        return super().around(method, key, call, **options)


class FirstOf(DelegatingReadable):
    """Several stores; the first store that has an object describes and reads it."""

    def __init__(self, places: Sequence[Readable]) -> None:
        super().__init__(places[0])
        self._places = places

    @property
    def features(self) -> Features:
        return replace(super().features, etag_is_md5=False, place=None)

    def around(self, method: str, key: str, call: Callable[..., T], **options: Any) -> T:
        """Return the first answer; without an answer, raise the error of the first store."""
        if method not in ("head", "open", "get"):
            return super().around(method, key, call, **options)
        errors: list[ObjectError | StoreError] = []
        for place in self._places:
            try:
                answer: T = getattr(place, method)(key, **options)
                return answer
            except (ObjectError, StoreError) as error:
                errors.append(error)
        first = errors[0]
        if isinstance(first, ObjectError):
            raise first
        raise ObjectError("object.unreadable", first.message, where=first.where, hint=first.hint)
