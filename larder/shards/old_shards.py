"""Reads samples from the shards of earlier segments, so that they can be packed again.

Neither the source nor the mirror is read for them. Every part is compared with the checksum of the
index. So what is packed again is what was packed before, and images are validated again only if
they were checked more weakly then.

Where the format stores parts as they are, neighbouring samples are read with one ranged request, by
any number of threads. A few shards of other formats are kept open, because opening one may mean
reading most of it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import groupby

import google_crc32c

from larder.config.shape import FormatUse
from larder.errors import DamageError, Failure, FatalError, NotFoundError, ObjectError
from larder.samples.images import Form
from larder.samples.indexed import IndexedPart, IndexedSample, SampleReader, check_part, part_place
from larder.shards.formats import shard_format
from larder.shards.images.check import PLAIN, ImageRules, check_decodable
from larder.shards.model import PlannedSample
from larder.shards.reading.fetch import Body, Fetched, failure_of
from larder.shards.reading.ranges import SPAN_BYTES, PartReader, spans
from larder.store import object_url
from larder.store.base import Buffer, Closing, Features, ObjectInfo, Readable, Reader
from larder.store.delegate import DelegatingReader


class OldShards(Closing):
    """The shards of the previous version's segments. May be used by many threads.

    Memory beyond the samples that are read: 1 MiB for each thread, and what the readers hold of up
    to 16 open shards in formats that do not store parts as they are. ``formats`` are by segment;
    ``shard_key`` gives the key of a shard's first file by segment, split and name; images of the
    segments ``weaker`` were checked more weakly than they are now.
    """

    def __init__(
        self,
        store: Readable,
        formats: Mapping[str, FormatUse],
        shard_key: Callable[[str, str, str], str],
        *,
        weaker: Collection[str] = (),
    ) -> None:
        self._store = store
        self._formats = formats
        self._shard_key = shard_key
        self._weaker = frozenset(weaker)
        self._open = OpenShards()

    def fetch(
        self,
        samples: Sequence[PlannedSample],
        rules: ImageRules = PLAIN,
    ) -> list[Fetched]:
        """Read packed samples into memory. Only images that are bad are returned as failures.

        The best order is that of their old shards. A damaged or missing shard is a `DamageError`.
        """
        order = sorted(range(len(samples)), key=lambda number: _place(samples[number]))
        contents: dict[int, Mapping[str, bytes]] = {}
        for place, group in groupby(order, key=lambda number: _place(samples[number])[:3]):
            numbers = list(group)
            old_samples = [_old(samples[number]) for number in numbers]
            contents.update(zip(numbers, self._read(*place, old_samples), strict=True))
        return [
            _fetched(sample, contents[number], self.rules_for(sample, rules))
            for number, sample in enumerate(samples)
        ]

    def parts(self, sample: PlannedSample) -> PackedParts | None:
        """The objects of a large sample, to be read in buffers; None if that cannot be done."""
        segment, split, shard, _ = _place(sample)
        key, old = self._shard_key(segment, split, shard), _old(sample)
        if not _is_range(old):
            shard_format_ = shard_format(*self._formats[segment])
            with old_shard_errors(object_url(self._store.url, key)):
                located = shard_format_.locate(self._store, key, old)
            if located is None:
                return None
            old = located
        return PackedParts(self._store, key, sample, old)

    def rules_for(self, sample: PlannedSample, rules: ImageRules) -> ImageRules:
        """The rules for a sample, considering how its images were checked."""
        assert sample.packed is not None, "it is read from a shard"
        return rules if sample.packed.segment in self._weaker else replace(rules, validate="none")

    def close(self) -> None:
        self._open.close()

    def _read(
        self, segment: str, split: str, shard: str, samples: Sequence[IndexedSample]
    ) -> list[Mapping[str, bytes]]:
        """The parts of samples of one shard, which are in its order."""
        key = self._shard_key(segment, split, shard)
        with old_shard_errors(object_url(self._store.url, key)):
            if not all(map(_is_range, samples)):
                shard_format_ = shard_format(*self._formats[segment])
                return self._open.read(key, lambda: shard_format_.open(self._store, key), samples)
            return [parts for span in spans(samples) for parts in self._read_span(key, span)]

    def _read_span(self, key: str, samples: Sequence[IndexedSample]) -> list[Mapping[str, bytes]]:
        start, stop = samples[0].offset, _end(samples[-1])
        if stop - start > SPAN_BYTES:  # a large sample by itself
            with PartReader(self._store, key, stop=stop) as reader:
                return [reader.read(sample) for sample in samples]
        url = object_url(self._store.url, key)
        data = self._store.get(key, offset=start, length=stop - start)
        if len(data) < stop - start:
            message = f"the shard ends at byte {start + len(data)}, {stop} are in the index"
            raise DamageError("damage.size", message, where=url)
        return [_parts_in(data, start, sample, url) for sample in samples]


def _old(sample: PlannedSample) -> IndexedSample:
    assert sample.packed is not None, "it is read from a shard"
    return sample.packed.sample


def _place(sample: PlannedSample) -> tuple[str, str, str, int]:
    assert sample.packed is not None, "it is read from a shard"
    segment, split, old = sample.packed
    return segment, split, old.shard, old.offset


def _is_range(sample: IndexedSample) -> bool:
    """Whether the parts are in the bytes of the sample, as they are; not so in columns."""
    start, stop = sample.offset, _end(sample)
    return all(
        part.offset is not None and start <= part.offset and part.offset + part.length <= stop
        for part in sample.parts
    )


def _end(sample: IndexedSample) -> int:
    return sample.offset + sample.length


def _parts_in(data: bytes, start: int, sample: IndexedSample, url: str) -> dict[str, bytes]:
    """The parts of a sample, from the bytes of its shard that begin at ``start``."""
    contents = {}
    for part in sample.parts:
        assert part.offset is not None, "the format stores parts as they are"
        begin = part.offset - start
        contents[part.ext] = check_part(part, data[begin : begin + part.length], sample, url)
    return contents


def _fetched(sample: PlannedSample, contents: Mapping[str, bytes], rules: ImageRules) -> Fetched:
    checksums = {part.ext: part.crc32c for part in _old(sample).parts}
    bodies = [Body(contents[part.ext], checksums[part.ext]) for part in sample.parts]
    failures: list[Failure] = []
    forms: dict[str, Form | str] = {}
    for part, body in zip(sample.parts, bodies, strict=True):
        try:
            form = check_decodable(part.ext, body.data, rules.validate, where=part.key, rules=rules)
            forms |= {part.ext: form} if form else {}
        except ObjectError as error:
            failures.append(failure_of(part, error, rules))
    return Fetched(bodies, failures, forms)


_HINT = (
    "restore it; or delete the dataset's tags/latest.json and prepare it again, which packs all"
    " samples from the source"
)


@contextmanager
def old_shard_errors(url: str) -> Iterator[None]:
    """Errors of reading a published shard: none of them is about an object of the source."""
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

    An object that is read completely is compared with the checksum of the index. Conditions on
    etags have been met: the run was planned with them. ``old`` has the offsets of all parts.
    """

    def __init__(
        self, store: Readable, key: str, sample: PlannedSample, old: IndexedSample
    ) -> None:
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
        etag, part = self._parts[key]
        return ObjectInfo(key, part.length, etag, 0)

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        """Content that differs from the index is noticed after the last byte of an object."""
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


class OpenShards(Closing):
    """Shards of any format, each read by one thread at a time and from front to back.

    A shard is opened again to go back in it. At most ``kept`` are open while no thread reads them.
    """

    def __init__(self, kept: int = 16) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._shards: OrderedDict[str, _Shard] = OrderedDict()

    def read(
        self, key: str, open_shard: Callable[[], SampleReader], samples: Sequence[IndexedSample]
    ) -> list[Mapping[str, bytes]]:
        """The parts of some samples of a shard, by extension; the samples are in its order."""
        with self._used(key) as shard, shard.lock:
            return [shard.read(sample, open_shard) for sample in samples]

    def close(self) -> None:
        for shard in self._shards.values():
            shard.close()
        self._shards.clear()

    @contextmanager
    def _used(self, key: str) -> Iterator[_Shard]:
        with self._lock:
            shard = self._shards.setdefault(key, _Shard())
            shard.users += 1
        try:
            yield shard
        finally:
            with self._lock:
                shard.users -= 1
                self._shards.move_to_end(key)
                unused = [each for each, open_shard in self._shards.items() if not open_shard.users]
                surplus = [
                    self._shards.pop(each) for each in unused[: max(0, len(unused) - self._kept)]
                ]
            for each in surplus:
                each.close()


class _Shard:
    """A shard that may be open, and the end of what was read of it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self._reader: SampleReader | None = None
        self._stack = ExitStack()
        self._end = 0

    def read(
        self, sample: IndexedSample, open_shard: Callable[[], SampleReader]
    ) -> Mapping[str, bytes]:
        if self._reader is None or sample.offset < self._end:
            self.close()
            self._reader = self._stack.enter_context(open_shard())
        self._end = sample.offset + sample.length
        try:
            return self._reader.read(sample, sample.parts)
        except BaseException:
            self.close()  # where it stands now is not known
            raise

    def close(self) -> None:
        self._reader = None
        self._stack.close()
