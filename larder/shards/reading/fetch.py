"""Read samples into memory, and check that their objects are as planned.

Derived objects that are near each other in their container are read with one request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING, NamedTuple

import google_crc32c

from larder.errors import Failure, ObjectError, printable
from larder.manifest.extents import in_object, in_own, parse_extent
from larder.samples.image_parts import Form
from larder.shards.images.check import PLAIN, ImageRules, check_decodable, stored_image
from larder.shards.model import Part, PlannedSample
from larder.shards.reading.ranges import spans
from larder.store.base import Readable, ReadOptions
from larder.store.delegate import DelegatingReadable
from larder.store.etags import checked_crc32c, checked_crc32cs

if TYPE_CHECKING:
    from typing import Unpack

UNDECODABLE = "sample.undecodable"
"""The only failure for which ``on_bad_sample: skip`` leaves a sample out."""


class Body(NamedTuple):
    data: bytes
    crc32c: int


class Fetched(NamedTuple):
    """The result of reading one sample; ``forms`` are from `check_decodable`, by extension."""

    bodies: list[Body]
    failures: list[Failure]
    forms: Mapping[str, Form | str]


class Contents(NamedTuple):
    """Contents of samples that were read without a failure, in columns."""

    data: Sequence[bytes]
    checksums: Sequence[int]

    def of_each(self, samples: Sequence[PlannedSample]) -> list[Fetched]:
        """Return the contents in the form of `fetch`, for each sample."""
        bodies = map(Body, self.data, self.checksums)
        return [Fetched(list(islice(bodies, len(each.parts))), [], {}) for each in samples]


def sample_bytes(sample: PlannedSample) -> int:
    """Return the bytes to read for a sample, from its objects or from its old shard."""
    if sample.packed is not None:
        return sum([part.length for part in sample.packed.parts])
    parts = sample.parts  # mostly one; a list is faster than a generator
    return parts[0].size_bytes if len(parts) == 1 else sum([part.size_bytes for part in parts])


def fetch(source: Readable, sample: PlannedSample, rules: ImageRules = PLAIN) -> Fetched:
    """Read a complete sample into memory; failures of its objects are returned, not raised."""
    bodies: list[Body] = []
    failures: list[Failure] = []
    forms: dict[str, Form | str] = {}
    for part in sample.parts:
        try:
            data = source.get(part.key, if_match=part.etag or None)
            crc32c = checked_crc32c(source, part.key, part.etag, part.size_bytes, data)
            check = rules.validate
            stored = stored_image(part.ext, data, where=part.key, rules=rules)
            if stored is not None:
                data, crc32c = stored, google_crc32c.value(stored)
                check = "none" if rules.decoders.is_image(part.ext) else rules.validate
            if form := check_decodable(part.ext, data, check, where=part.key, rules=rules):
                forms[part.ext] = form
            bodies.append(Body(data, crc32c))
        except ObjectError as error:
            failures.append(failure_of(part, error, rules))
    return Fetched(bodies, failures, forms)


def sends_several(source: Readable, rules: ImageRules) -> bool:
    """Whether `fetch_all` has several requests in progress."""
    return source.features.reads_ahead and not rules.forms and rules.transform is None


def fetch_all(
    source: Readable, samples: Sequence[PlannedSample], rules: ImageRules = PLAIN
) -> Contents | list[Fetched]:
    """Read samples faster than `fetch`; a list if any failed, or for forms or transforms."""
    if rules.forms or rules.transform is not None:
        return [fetch(source, each, rules) for each in samples]
    parts = [part for sample in samples for part in sample.parts]
    objects = [part[1:] for part in parts]
    try:
        data = list(source.get_each(objects))
        contents = Contents(data, checked_crc32cs(source, objects, data))
    except ObjectError:  # more objects may fail: find each failure
        return [fetch(source, each, rules) for each in samples]
    bad = set()
    for part, content in zip(parts if rules.validate != "none" else (), data, strict=False):
        try:
            check_decodable(part.ext, content, rules.validate, where=part.key, rules=rules)
        except ObjectError:
            bad.add(part)
    if not bad:
        return contents
    return [
        each if bad.isdisjoint(sample.parts) else fetch(source, sample, rules)
        for sample, each in zip(samples, contents.of_each(samples), strict=True)
    ]


def failure_of(part: Part, error: ObjectError, rules: ImageRules) -> Failure:
    if rules.skip and error.code == UNDECODABLE:
        error = ObjectError(error.code, error.message, where=error.where)
    return Failure.of(part.key, error)


def skipped_failure(sample: str, objects: Iterable[str], message: str) -> Failure:
    """Return the failure of a sample left out as bad, under the object that the message names."""
    named = (key for key in objects if message.startswith(f"{printable(key)}: "))
    return Failure(key=next(named, sample), code=UNDECODABLE, message=message)


def known_failure(sample: PlannedSample) -> Failure:
    """Return the failure of a sample found bad by an earlier run, as that run reported it."""
    assert sample.bad is not None, "it was found bad"
    return skipped_failure(sample.key, (part.key for part in sample.parts), sample.bad)


class _DerivedRange(NamedTuple):
    """A derived object; ranges of one container are equal in ``end`` and ``container``."""

    container: str
    end: str
    offset: int
    length: int
    key: str
    etag: str


def has_derived(sample: PlannedSample) -> bool:
    # A loop is faster than a generator here, and every sample needs it.
    for part in sample.parts:  # noqa: SIM110
        if part.etag.startswith("@"):
            return True
    return False


def fetch_together(
    source: Readable, samples: Sequence[PlannedSample], rules: ImageRules = PLAIN
) -> Contents | list[Fetched]:
    """Like `fetch_all`, but read neighbouring derived objects with one request."""
    if any(map(has_derived, samples)):
        source = _PrefetchedStore(source, _read_derived(source, _derived_ranges(samples)))
    return fetch_all(source, samples, rules)


def _derived_ranges(samples: Iterable[PlannedSample]) -> Iterator[_DerivedRange]:
    for sample in samples:
        for part in sample.parts:
            extent = parse_extent(part.etag)
            if extent is not None:
                container = extent.container(part.key)
                end = in_own(container) if extent.name else in_object(container, extent.etag)
                place = container, end, extent.offset, extent.length
                yield _DerivedRange(*place, part.key, part.etag)


def _read_derived(
    source: Readable, ranges: Iterable[_DerivedRange]
) -> dict[tuple[str, str], bytes]:
    """Return the readable contents by key and etag."""
    contents = {}
    for _, group in groupby(sorted(ranges), key=lambda each: each[:2]):
        for span in spans(group):
            start, stop = span[0].offset, max(each.offset + each.length for each in span)
            etag = f"@{start}+{stop - start}{span[0].end}"
            try:
                data = source.get(span[0].key, if_match=etag)
            except ObjectError:
                continue  # each object is tried by itself later, and its own error reported
            for each in span:
                at = each.offset - start
                contents[each.key, each.etag] = data[at : at + each.length]
    return contents


class _PrefetchedStore(DelegatingReadable):
    """A store with some objects that were read already."""

    def __init__(self, inner: Readable, contents: Mapping[tuple[str, str], bytes]) -> None:
        super().__init__(inner)
        self._contents = contents

    def get(self, key: str, **options: Unpack[ReadOptions]) -> bytes:
        whole = not options.get("offset") and options.get("length") is None
        data = self._contents.get((key, options.get("if_match") or "")) if whole else None
        return super().get(key, **options) if data is None else data
