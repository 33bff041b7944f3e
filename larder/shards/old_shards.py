"""Read samples from the shards of earlier segments, to pack them again.

Parts that are ranges of a shard are read as ranges in every format: neighbours with one request, by
any number of threads, and a large sample in buffers. The format's reader reads other parts into
memory. A sample too large for this is planned to be read from its objects. Every part is compared
with the checksum of the index.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import google_crc32c

from larder.config.shape import FormatUse
from larder.errors import DamageError, Failure, FatalError, NotFoundError, ObjectError
from larder.manifest.sealed import REPAIR
from larder.samples.image_parts import Form
from larder.samples.indexed import IndexedPart, IndexedSample, SampleReader, part_place
from larder.shards.formats import shard_format
from larder.shards.images.check import PLAIN, ImageRules, check_decodable
from larder.shards.model import PlannedSample
from larder.shards.reading.fetch import Body, Fetched, failure_of
from larder.shards.reading.large import OtherContents
from larder.shards.reading.ranges import read_parts
from larder.store import object_url
from larder.store.base import Buffer, Closing, ObjectInfo, Readable, Reader, ReadOptions
from larder.store.delegate import DelegatingReader

if TYPE_CHECKING:
    from typing import Unpack

_MOST_OPEN = 16
"""Most open shards: samples of this many segments may alternate in a new segment's order."""


class OldShards(Closing):
    """The shards of the previous version's segments.

    ``formats`` are by segment, and ``segment_of`` gives the segment of a shard's key. Images of the
    segments ``weaker`` were checked more weakly than now.
    """

    def __init__(
        self,
        store: Readable,
        formats: Mapping[str, FormatUse],
        segment_of: Callable[[str], str],
        *,
        weaker: Collection[str] = (),
    ) -> None:
        self.store = store
        self._formats = formats
        self._segment_of = segment_of
        self._weaker = frozenset(weaker)
        self._open: OrderedDict[str, tuple[int, SampleReader]] = OrderedDict()

    def fetch(self, samples: Sequence[PlannedSample], rules: ImageRules = PLAIN) -> list[Fetched]:
        """Read into memory samples whose parts are ranges; many threads may call this method.

        Only bad images are returned as failures. A damaged or missing shard raises `DamageError`.
        """
        by_shard: dict[str, list[int]] = defaultdict(list)
        for number, sample in enumerate(samples):
            by_shard[_packed(sample).shard].append(number)
        contents: dict[int, Mapping[str, bytes]] = {}
        for key, numbers in by_shard.items():
            old_samples = [_packed(samples[number]) for number in numbers]
            with old_shard_errors(object_url(self.store.url, key)):
                parts = read_parts(self.store, key, old_samples)
                contents |= zip(numbers, parts, strict=True)
        return [
            _fetched(sample, contents[number], self.rules_for(sample, rules))
            for number, sample in enumerate(samples)
        ]

    def read(self, sample: PlannedSample, rules: ImageRules = PLAIN) -> Fetched:
        """Read one sample whose parts are not ranges; may be called by one thread at a time."""
        packed = _packed(sample)
        with old_shard_errors(object_url(self.store.url, packed.shard)):
            contents = self._reader(packed).read(packed, packed.parts)
        return _fetched(sample, contents, self.rules_for(sample, rules))

    def rules_for(self, sample: PlannedSample, rules: ImageRules) -> ImageRules:
        """Return the rules for a sample: validate images only if checked more weakly before."""
        weaker = self._segment_of(_packed(sample).shard) in self._weaker
        return rules if weaker else rules._replace(validate="none")

    def close(self) -> None:
        for _, reader in self._open.values():
            reader.close()
        self._open.clear()

    def _reader(self, packed: IndexedSample) -> SampleReader:
        """Return a reader of a shard whose position is not after the sample's beginning."""
        key = packed.shard
        end, reader = self._open.pop(key, (0, None))
        if reader is None or packed.offset < end:
            if reader is not None:
                reader.close()
            reader = shard_format(*self._formats[self._segment_of(key)]).open(self.store, key)
        self._open[key] = packed.offset + packed.length, reader
        if len(self._open) > _MOST_OPEN:
            _, (_, unused) = self._open.popitem(last=False)
            unused.close()
        return reader


def _packed(sample: PlannedSample) -> IndexedSample:
    assert sample.packed is not None, "it is read from a shard"
    return sample.packed


def _indexed_parts(sample: PlannedSample) -> list[IndexedPart]:
    """Return the parts of a sample in its old shard, in the order of its objects."""
    packed = _packed(sample)
    by_ext = {part.ext: part for part in packed.parts}
    try:
        return [by_ext[part.ext] for part in sample.parts]
    except KeyError:
        message = f"the index lists other parts of {sample.key} than were packed"
        raise DamageError("damage.manifest", message, where=packed.shard, hint=REPAIR) from None


def _fetched(sample: PlannedSample, contents: Mapping[str, bytes], rules: ImageRules) -> Fetched:
    bodies = [Body(contents[part.ext], part.crc32c) for part in _indexed_parts(sample)]
    failures: list[Failure] = []
    forms: dict[str, Form | str] = {}
    for part, body in zip(sample.parts, bodies, strict=True):
        try:
            form = check_decodable(part.ext, body.data, rules.validate, where=part.key, rules=rules)
            forms |= {part.ext: form} if form else {}
        except ObjectError as error:
            failures.append(failure_of(part, error, rules))
    return Fetched(bodies, failures, forms)


@contextmanager
def old_shard_errors(url: str) -> Iterator[None]:
    """Convert errors of reading a published shard, which are not about objects of the source."""
    try:
        yield
    except DamageError as error:
        where, hint = error.where, error.hint or REPAIR
        raise DamageError(error.code, error.message, where=where, hint=hint) from error
    except NotFoundError as error:
        raise DamageError("damage.size", "the shard is missing", where=url, hint=REPAIR) from error
    except ObjectError as error:
        if error.code == "object.truncated":
            raise DamageError("damage.size", error.message, where=url, hint=REPAIR) from error
        raise FatalError(error.code, error.message, where=url, hint=error.hint) from error


class PackedParts(OtherContents):
    """A store with the parts of one sample in its old shard, under the keys of its objects.

    An object that is read completely is compared with the checksum of the index. Etags are not
    compared again: the run was planned with them. ``sample`` has the lengths in the shard, because
    images may have been transformed.
    """

    def __init__(self, store: Readable, sample: PlannedSample) -> None:
        super().__init__(store)
        self._old = _packed(sample)
        pairs = list(zip(sample.parts, _indexed_parts(sample), strict=True))
        self._parts = {part.key: (part.etag, indexed) for part, indexed in pairs}
        stored = (part._replace(size_bytes=indexed.length) for part, indexed in pairs)
        self.sample = sample._replace(parts=tuple(stored))

    def head(self, key: str) -> ObjectInfo:
        etag, part = self._parts[key]
        return ObjectInfo(key, part.length, etag, 0)

    def open(self, key: str, **options: Unpack[ReadOptions]) -> Reader:
        """Open an object; after its last byte, content that differs from the index is refused."""
        offset, length = options.get("offset", 0), options.get("length")
        _, part = self._parts[key]
        assert part.offset is not None, "the format stores parts as they are"
        left = max(0, part.length - offset)
        wanted = left if length is None else min(length, left)
        url = object_url(self.url, self._old.shard)
        with old_shard_errors(url):
            inner = self.inner.open(self._old.shard, offset=part.offset + offset, length=wanted)
        place = part_place(url, self._old, part.ext)
        return _PackedPartReader(inner, self.head(key), part, wanted, url, place)

    def verify(self) -> None:
        for key in self._parts:
            with self.open(key) as reader:
                for _ in reader:
                    pass


class _PackedPartReader(DelegatingReader):
    """A reader of one part that checks the length and, if the part is complete, the checksum."""

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
