"""The objects of a large sample, read from the shard that it was packed into."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import google_crc32c

from larder.errors import DamageError, FatalError, NotFoundError, ObjectError
from larder.samples.indexed import IndexedPart, IndexedSample, part_place
from larder.shards.model import Sample
from larder.store import object_url
from larder.store.base import Buffer, Features, ObjectInfo, Readable, Reader
from larder.store.delegate import DelegatingReader

_HINT = (
    "restore it; or delete the dataset's tags/latest.json and prepare it again, which packs all"
    " samples from the source"
)


@contextmanager
def old_shard_errors(url: str) -> Iterator[None]:
    """Errors of reading a published shard: none of them is about an object of the source.

    Raises:
        DamageError: The shard is damaged, too short or missing.
        FatalError: The store refuses to return it.
    """
    try:
        yield
    except DamageError as error:
        where, hint = error.where, error.hint or _HINT
        raise DamageError(error.code, error.message, where=where, hint=hint) from error
    except NotFoundError as error:
        raise DamageError("damage.size", "the shard is missing", where=url, hint=_HINT) from error
    except ObjectError as error:
        if error.code == "object.truncated":
            raise DamageError("damage.size", error.message, where=url, hint=_HINT) from error
        raise FatalError(error.code, error.message, where=url, hint=error.hint) from error


class PackedParts(Readable):
    """The objects of one sample, under the keys and etags that they have now.

    The format has to store parts as they are. An object that is read completely is compared with
    the checksum of the index. Conditions on etags have been met: the run was planned with them.
    ``old`` is the entry in the index, with the offsets of all parts.
    """

    def __init__(self, store: Readable, key: str, sample: Sample, old: IndexedSample) -> None:
        self._store = store
        self._key = key
        self._old = old
        by_ext = {part.ext: part for part in old.parts}
        self._parts = {part.key: (part.etag, by_ext[part.ext]) for part in sample.parts}

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def features(self) -> Features:
        """The features of the store, except that etags are those of the source."""
        return replace(self._store.features, etag_is_md5=False)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        after = start_after.encode()
        keys = sorted((key for key in self._parts if key.startswith(prefix)), key=str.encode)
        if page := [self.head(key) for key in keys if key.encode() > after]:
            yield page

    def head(self, key: str) -> ObjectInfo:
        """The object, with its etag in the source."""
        etag, part = self._parts[key]
        return ObjectInfo(key, part.length, etag, 0)

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        """DamageError if the shard is missing or ends too early, or has other content than the
        index.

        The last is noticed after the last byte of a complete object.
        """
        _, part = self._parts[key]
        assert part.offset is not None, "the format stores parts as they are"
        left = max(0, part.length - offset)
        wanted = left if length is None else min(length, left)
        url = object_url(self._store.url, self._key)
        with old_shard_errors(url):
            inner = self._store.open(self._key, offset=part.offset + offset, length=wanted)
        place = part_place(url, self._old, part.ext)
        return _PartReader(inner, self.head(key), part, wanted, url, place)

    def verify(self) -> None:
        """Read all objects, with the errors of `open`."""
        for key in self._parts:
            with self.open(key) as reader:
                for _ in reader:
                    pass


class _PartReader(DelegatingReader):
    """Reads one part, and checks its length and, if it is complete, its checksum."""

    def __init__(
        self, inner: Reader, info: ObjectInfo, part: IndexedPart, wanted: int, url: str, place: str
    ) -> None:
        super().__init__(inner, info)
        self._part = part
        self._wanted = wanted
        self._url = url
        self._place = place

    def __iter__(self) -> Iterator[Buffer]:
        crc32c = size_bytes = 0
        with old_shard_errors(self._url):
            for buffer in self.inner:
                data = bytes(buffer)
                crc32c = google_crc32c.extend(crc32c, data)
                size_bytes += len(data)
                yield data
            if size_bytes != self._wanted:
                message = f"the shard ends {self._wanted - size_bytes} bytes too early"
                raise DamageError("damage.size", message, where=self._place)
            if self._wanted == self._part.length and crc32c != self._part.crc32c:
                message = "its CRC-32C differs from the index"
                raise DamageError("damage.record", message, where=self._place)
