"""Read ranges of an object, and parts of samples that are ranges of a shard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple, Protocol, TypeVar

from larder.errors import DamageError, ObjectError
from larder.samples.indexed import IndexedPart, IndexedSample, check_part, part_place
from larder.store import object_url
from larder.store.base import Closing, Readable, Reader

_SKIP_BYTES = 8 << 20
"""A gap up to this length is read and discarded; at a longer gap the object is opened again."""


class RangeReader(Closing):
    """A reader of an object's ranges from front to back, up to ``stop`` or its end."""

    def __init__(self, store: Readable, key: str, stop: int | None = None) -> None:
        self.url = object_url(store.url, key)
        self._stop = stop
        self._store = store
        self._key = key
        self._reader: Reader | None = None
        self._buffers: Iterator[bytes | bytearray | memoryview] = iter(())
        self._buffer = memoryview(b"")
        self._position = 0

    @property
    def etag(self) -> str:
        """The object's etag; empty before the first range is read."""
        return self._reader.info.etag if self._reader is not None else ""

    def read_range(self, offset: int, length: int) -> bytes:
        """Read a range that begins at or after the end of the previous range.

        Raises:
            DamageError: ``damage.size``: the object ends too early; ``damage.manifest``: the range
                begins earlier.
        """
        if offset < self._position:
            message = f"the index goes back from byte {self._position} to {offset}"
            raise DamageError("damage.manifest", message, where=self.url)
        if self._reader is None or offset - self._position > _SKIP_BYTES:
            self._open(offset)
        for _ in self._take(offset - self._position):
            pass
        pieces = list(self._take(length))
        if len(pieces) == 1 and isinstance(whole := pieces[0].obj, bytes) and len(whole) == length:
            return whole  # not copied: a copy would take as long as the reading
        return b"".join(pieces)

    def _open(self, offset: int) -> None:
        self.close()
        try:
            length = None if self._stop is None else self._stop - offset
            self._reader = self._store.open(self._key, offset=offset, length=length)
        except ObjectError as error:
            if error.code != "object.truncated":
                raise
            message = f"the shard ends before byte {offset}, although the index refers to more"
            raise DamageError("damage.size", message, where=self.url) from None
        self._buffers, self._buffer, self._position = iter(self._reader), memoryview(b""), offset

    def _take(self, length: int) -> Iterator[memoryview]:
        while length:
            if not self._buffer:
                following = next(self._buffers, None)
                if following is None:
                    message = f"the shard ends at byte {self._position}, {length} bytes too early"
                    raise DamageError("damage.size", message, where=self.url)
                self._buffer = memoryview(following).cast("B")
            piece, self._buffer = self._buffer[:length], self._buffer[length:]
            length -= len(piece)
            self._position += len(piece)
            yield piece

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


class PartReader(RangeReader):
    def read(
        self, sample: IndexedSample, parts: Sequence[IndexedPart] | None = None
    ) -> dict[str, bytes]:
        """Read parts of a sample, in the order of their offsets."""
        places = []
        for part in sample.parts if parts is None else parts:
            if part.offset is None:
                where, message = part_place(self.url, sample, part.ext), "the index has no offset"
                raise DamageError("damage.manifest", message, where=where)
            places.append((part.offset, part))
        contents = {}
        for offset, part in sorted(places, key=itemgetter(0)):
            data = self.read_range(offset, part.length)
            contents[part.ext] = check_part(part, data, sample, self.url)
        return contents


SPAN_BYTES = 1 << 20
"""Most bytes of one request, for many shards that are built at once."""

_GAP_BYTES = 64 << 10
"""A gap up to this length is read and discarded; a longer gap begins another request."""


class _Range(Protocol):
    @property
    def offset(self) -> int: ...

    @property
    def length(self) -> int: ...


Range = TypeVar("Range", bound=_Range)


def spans(ranges: Iterable[Range], span_bytes: int = SPAN_BYTES) -> Iterator[list[Range]]:
    """Divide ranges, sorted by ``offset``, into spans for one request each.

    A span has at most ``span_bytes``, unless a single range is larger.
    """
    span: list[Range] = []
    for each in ranges:
        if span:
            far = each.offset - _stop(span[-1]) > _GAP_BYTES
            if far or _stop(each) - span[0].offset > span_bytes:
                yield span
                span = []
        span.append(each)
    if span:
        yield span


def _stop(each: _Range) -> int:
    return each.offset + each.length


class _IndexedRange(NamedTuple):
    offset: int
    length: int
    sample: int
    part: IndexedPart


def read_parts(
    store: Readable, key: str, samples: Sequence[IndexedSample]
) -> Sequence[Mapping[str, bytes]]:
    """Return each sample's parts by extension; all parts must be ranges of the shard."""
    url = object_url(store.url, key)
    ranges = [
        _IndexedRange(part.offset, part.length, number, part)
        for number, sample in enumerate(samples)
        for part in sample.parts
        if part.offset is not None
    ]
    contents: list[dict[str, bytes]] = [{} for _ in samples]
    for span in spans(sorted(ranges)):
        start, stop = span[0].offset, _stop(span[-1])
        data = store.get(key, offset=start, length=stop - start) if start < stop else b""
        if len(data) < stop - start:
            message = f"the shard ends at byte {start + len(data)}, {stop} are in the index"
            raise DamageError("damage.size", message, where=url)
        for offset, length, number, part in span:
            content = data[offset - start :][:length]
            contents[number][part.ext] = check_part(part, content, samples[number], url)
    return contents
