"""The objects of a damaged shard's samples, from wherever their bytes still are.

Each part is known by its length and CRC-32C, so it does not matter where it is read: in the damaged
shard itself, where most samples are intact, in the mirror, in the source, or in a shard of another
segment that the sample was packed from or into. Etags are not compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

import google_crc32c

from larder.errors import ObjectError, printable
from larder.manifest.extents import parse_extent, unconditional
from larder.shards.images import ImageRules, stored_image
from larder.store.base import Buffer, Features, ObjectInfo, Readable, Reader

__all__ = ["InShard", "OfOriginals", "OfStore", "Place", "Salvage", "Wanted"]


class Wanted(NamedTuple):
    """A part as it was packed.

    Attributes:
        etag: Etag of its object then.
        length: Its length, bytes.
        crc32c: Its checksum.
    """

    etag: str
    length: int
    crc32c: int


class Place(Protocol):
    """Somewhere that a part may be."""

    @property
    def name(self) -> str:
        """What it is called in reports, such as ``the mirror``."""

    def open(self, key: str, wanted: Wanted, offset: int, length: int) -> Reader | None:
        """Open a range of the part that was made from an object; None if it is not there.

        Raises:
            ObjectError: It is not there, or cannot be read.
        """


class OfStore(NamedTuple):
    """Objects under their own keys: the mirror, or the source."""

    name: str
    store: Readable

    def open(self, key: str, wanted: Wanted, offset: int, length: int) -> Reader | None:
        """See `Place.open`."""
        extent = parse_extent(wanted.etag)
        where = unconditional(extent) if extent else None
        return self.store.open(key, offset=offset, length=length, if_match=where)


class OfOriginals(NamedTuple):
    """Images under their own keys in the mirror or the source, which were transformed.

    Attributes:
        name: What it is called.
        store: The mirror, or the source.
        exts: By key of an object, the extension of the part that was made from it.
        rules: How images were transformed.
    """

    name: str
    store: Readable
    exts: Mapping[str, str]
    rules: ImageRules

    def open(self, key: str, wanted: Wanted, offset: int, length: int) -> Reader | None:
        """See `Place.open`; transforms the image again, in memory."""
        extent = parse_extent(wanted.etag)
        data = self.store.get(key, if_match=unconditional(extent) if extent else None)
        stored = stored_image(self.exts[key], data, where=key, rules=self.rules)
        data = data if stored is None else stored
        return _Held(ObjectInfo(key, len(data), wanted.etag, 0), data[offset : offset + length])


class InShard(NamedTuple):
    """Parts that are ranges of shards.

    Attributes:
        name: What it is called.
        store: The dataset's root.
        find: Returns the key of the shard and the offset of the part, or None.
    """

    name: str
    store: Readable
    find: Callable[[str, Wanted], tuple[str, int] | None]

    def open(self, key: str, wanted: Wanted, offset: int, length: int) -> Reader | None:
        """See `Place.open`."""
        found = self.find(key, wanted)
        if found is None:
            return None
        shard, start = found
        return self.store.open(shard, offset=start + offset, length=length)


class Salvage(Readable):
    """Reads objects from the first place that has their bytes. May be used by many threads.

    Args:
        url: What is repaired, for errors.
        wanted: By key of an object, the part that was made from it.
        places: Where to look, in this order.

    Attributes:
        used: How many objects were read from each place.
    """

    def __init__(self, url: str, wanted: Mapping[str, Wanted], places: tuple[Place, ...]) -> None:
        self.used: Counter[str] = Counter()
        self._url = url
        self._wanted = wanted
        self._places = places

    @property
    def url(self) -> str:
        """What is repaired."""
        return self._url

    @property
    def features(self) -> Features:
        """No etag proves anything here."""
        return Features(replace_if_match=False, etag_is_md5=False)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        """Nothing: only known objects are read."""
        del prefix, start_after
        return iter(())

    def head(self, key: str) -> ObjectInfo:
        """The object as it was packed."""
        wanted = self._wanted[key]
        return ObjectInfo(key, wanted.length, wanted.etag, 0)

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        """The bytes of an object as it was packed, or of a range of it.

        Raises:
            ObjectError: ``object.changed``: no place has them.
        """
        del if_match
        if not self._wanted[key].length:
            return b""
        data, _ = self._found(key, whole=True)
        stop = None if length is None else offset + length
        return data[offset:stop] if offset or length is not None else data

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        """Open an object after reading it once, to find the place that has its bytes.

        Raises:
            ObjectError: ``object.changed``: no place has them.
        """
        del if_match
        wanted = self._wanted[key]
        if not wanted.length:
            return _Held(self.head(key), b"")
        _, place = self._found(key, whole=False)
        rest = wanted.length - offset
        reader = place.open(key, wanted, offset, rest if length is None else min(length, rest))
        assert reader is not None, "it was there a moment ago"
        return reader

    def _found(self, key: str, *, whole: bool) -> tuple[bytes, Place]:
        """The content, if it is wanted, and the place that has it."""
        wanted = self._wanted[key]
        why = []
        for place in self._places:
            try:
                pieces, crc32c, size_bytes = _read(place, key, wanted, whole)
            except ObjectError as error:
                missing = error.code == "object.missing"
                why.append(f"{'not in' if missing else 'unreadable in'} {place.name}")
                continue
            if (size_bytes, crc32c) == (wanted.length, wanted.crc32c):
                self.used[place.name] += 1
                return b"".join(pieces), place
            if size_bytes >= 0:
                why.append(f"other bytes in {place.name}")
        message = f"its bytes are nowhere any more: {', '.join(why) or 'there is no such place'}"
        raise ObjectError("object.changed", message, where=printable(key))


class _Held(Reader):
    """Bytes in memory."""

    def __init__(self, info: ObjectInfo, data: bytes) -> None:
        self.info = info
        self._data = data

    def __iter__(self) -> Iterator[Buffer]:
        """The bytes, at once."""
        return iter([self._data] if self._data else [])

    def close(self) -> None:
        """Nothing to close."""


def _read(place: Place, key: str, wanted: Wanted, whole: bool) -> tuple[list[bytes], int, int]:
    """Pieces, checksum and length of what a place has; a length of -1 if it has nothing.

    One byte more than is wanted is requested, to notice an object that has grown.
    """
    pieces: list[bytes] = []
    crc32c = size_bytes = 0
    longer = 1 if isinstance(place, OfStore | OfOriginals) else 0
    reader = place.open(key, wanted, 0, wanted.length + longer)
    if reader is None:
        return pieces, crc32c, -1
    with reader:
        for buffer in reader:
            data = bytes(buffer)
            crc32c = google_crc32c.extend(crc32c, data)
            size_bytes += len(data)
            if whole:
                pieces.append(data)
    return pieces, crc32c, size_bytes
