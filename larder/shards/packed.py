"""Reads samples from the shards of earlier segments, so that they can be packed again.

Neither the source nor the mirror is read for them. Every part is compared with the checksum of the
index. So what is packed again is what was packed before, and images are validated again only if
they were checked more weakly then.

Where the format stores parts as they are, neighbouring samples are read with one ranged request, by
any number of threads. Shards of other formats are kept open by `larder.shards.open_shards`, because
opening one may mean reading most of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby

from larder.config.shape import FormatUse
from larder.errors import DamageError, Failure, ObjectError
from larder.samples.indexed import IndexedSample, check_part
from larder.samples.pictures import Form
from larder.shards.fetch import Body, Fetched, failure_of
from larder.shards.formats import shard_format
from larder.shards.formats.base import Locating
from larder.shards.images import PLAIN, ImageRules, Validation, check_decodable
from larder.shards.model import Sample
from larder.shards.open_shards import OpenShards
from larder.shards.packed_parts import PackedParts, old_shard_errors
from larder.shards.ranges import PartReader
from larder.shards.spans import SPAN_BYTES, spans
from larder.store import object_url
from larder.store.base import Closing, Readable


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
        samples: Sequence[Sample],
        validate: Validation,
        *,
        skip: bool = False,
        rules: ImageRules = PLAIN,
    ) -> list[Fetched]:
        """Read packed samples into memory. Only images that are bad are returned as failures.

        The best order is that of their old shards. Images are checked if they were checked more
        weakly; ``skip`` as in `larder.shards.fetch.fetch`.

        Raises:
            DamageError: An old shard is damaged or missing.
            FatalError: The store does not return it.
        """
        order = sorted(range(len(samples)), key=lambda number: _place(samples[number]))
        contents: dict[int, Mapping[str, bytes]] = {}
        for place, group in groupby(order, key=lambda number: _place(samples[number])[:3]):
            numbers = list(group)
            own = [_old(samples[number]) for number in numbers]
            contents.update(zip(numbers, self._read(*place, own), strict=True))
        return [
            _fetched(
                sample, contents[number], self.validation(sample, validate), skip=skip, rules=rules
            )
            for number, sample in enumerate(samples)
        ]

    def parts(self, sample: Sample) -> PackedParts | None:
        """The objects of a large sample, to be read in buffers; None if its format cannot do that.

        `PackedParts` says what is checked. Errors are those of `fetch`.
        """
        segment, split, shard, _ = _place(sample)
        key, old = self._shard_key(segment, split, shard), _old(sample)
        if not _is_range(old):
            shard_format_ = shard_format(*self._formats[segment])
            if not isinstance(shard_format_, Locating):
                return None
            with old_shard_errors(object_url(self._store.url, key)):
                located = shard_format_.locate(self._store, key, old)
            if located is None:
                return None
            old = located
        return PackedParts(self._store, key, sample, old)

    def validation(self, sample: Sample, validate: Validation) -> Validation:
        """How the images of a sample have to be checked, considering how they were checked."""
        assert sample.packed is not None, "it is read from a shard"
        return validate if sample.packed.segment in self._weaker else "none"

    def close(self) -> None:
        """Close all shards; no thread may be reading."""
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


def _old(sample: Sample) -> IndexedSample:
    assert sample.packed is not None, "it is read from a shard"
    return sample.packed.sample


def _place(sample: Sample) -> tuple[str, str, str, int]:
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
    found = {}
    for part in sample.parts:
        assert part.offset is not None, "the format stores parts as they are"
        begin = part.offset - start
        found[part.ext] = check_part(part, data[begin : begin + part.length], sample, url)
    return found


def _fetched(
    sample: Sample,
    contents: Mapping[str, bytes],
    validate: Validation,
    *,
    skip: bool,
    rules: ImageRules,
) -> Fetched:
    checksums = {part.ext: part.crc32c for part in _old(sample).parts}
    bodies = [Body(contents[part.ext], checksums[part.ext]) for part in sample.parts]
    failures: list[Failure] = []
    forms: dict[str, Form | str] = {}
    for part, body in zip(sample.parts, bodies, strict=True):
        try:
            form = check_decodable(part.ext, body.data, validate, where=part.key, rules=rules)
            forms |= {part.ext: form} if form else {}
        except ObjectError as error:
            failures.append(failure_of(part, error, skip=skip))
    return Fetched(bodies, failures, forms)
