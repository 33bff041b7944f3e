"""Reads the objects of a sample, and checks that they are as planned."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import google_crc32c

from larder.errors import Failure, ObjectError, printable
from larder.manifest.extents import parse_extent
from larder.samples.pictures import Form
from larder.seekable import ObjectFile
from larder.shards.images import PLAIN, ImageRules, Validation, check_decodable, stored_image
from larder.shards.model import Part, Sample
from larder.store.base import Readable
from larder.store.etags import ContentCheck, changed, checked_crc32c, checked_crc32cs

UNDECODABLE = "sample.undecodable"
"""The only failure for which ``on_bad_sample: skip`` leaves a sample out."""

RANGE_BYTES = 1 << 20
"""How much of a large object is read at a time."""


class Body(NamedTuple):
    data: bytes
    crc32c: int


class Fetched(NamedTuple):
    """The result of reading one sample.

    Attributes:
        forms: By extension, what each part decodes to, if the rules ask for it; see
            `larder.shards.images.check_decodable`.
    """

    bodies: list[Body]
    failures: list[Failure]
    forms: Mapping[str, Form | str]


class Contents(NamedTuple):
    """The contents of some samples that were read without a failure, in columns.

    Attributes:
        data: The bytes of all parts, sample by sample.
        checksums: The CRC-32C of each.
    """

    data: Sequence[bytes]
    checksums: Sequence[int]

    def of_each(self, samples: Sequence[Sample]) -> list[Fetched]:
        """The same as `fetch` returns for each of these samples."""
        bodies = map(Body, self.data, self.checksums)
        return [Fetched(list(islice(bodies, len(each.parts))), [], {}) for each in samples]


def sample_bytes(sample: Sample) -> int:
    parts = sample.parts  # mostly one; a list is faster than a generator
    return parts[0].size_bytes if len(parts) == 1 else sum([part.size_bytes for part in parts])


def fetch(
    source: Readable,
    sample: Sample,
    validate: Validation,
    *,
    skip: bool = False,
    rules: ImageRules = PLAIN,
) -> Fetched:
    """Read a complete sample into memory; failures of its objects are returned, not raised.

    With ``skip``, samples with undecodable images are left out, so that no hint is needed.
    """
    bodies: list[Body] = []
    failures: list[Failure] = []
    forms: dict[str, Form | str] = {}
    for part in sample.parts:
        try:
            data = source.get(part.key, if_match=part.etag or None)
            crc32c = checked_crc32c(source, part.key, part.etag, part.size_bytes, data)
            check, stored = validate, stored_image(part.ext, data, where=part.key, rules=rules)
            if stored is not None:
                data, crc32c = stored, google_crc32c.value(stored)
                check = "none" if rules.decoders.is_image(part.ext) else validate
            if form := check_decodable(part.ext, data, check, where=part.key, rules=rules):
                forms[part.ext] = form
            bodies.append(Body(data, crc32c))
        except ObjectError as error:
            failures.append(failure_of(part, error, skip=skip))
    return Fetched(bodies, failures, forms)


def fetch_all(
    source: Readable,
    samples: Sequence[Sample],
    validate: Validation,
    *,
    skip: bool = False,
    rules: ImageRules = PLAIN,
) -> Contents | list[Fetched]:
    """Read samples into memory, which is faster than to `fetch` one after the other.

    The result is a list if any sample failed, or if there is more to say than the contents.
    """
    if rules.forms or rules.transform is not None:
        return [fetch(source, each, validate, skip=skip, rules=rules) for each in samples]
    parts = [part for sample in samples for part in sample.parts]
    objects = [part[1:] for part in parts]
    try:
        data = source.get_each(objects)
        found = Contents(data, checked_crc32cs(source, objects, data))
    except ObjectError:  # there may be several, of which each is to be found
        return [fetch(source, each, validate, skip=skip, rules=rules) for each in samples]
    bad = set()
    for part, content in zip(parts if validate != "none" else (), data, strict=False):
        try:
            check_decodable(part.ext, content, validate, where=part.key, rules=rules)
        except ObjectError:
            bad.add(part)
    if not bad:
        return found
    return [
        each
        if bad.isdisjoint(sample.parts)
        else fetch(source, sample, validate, skip=skip, rules=rules)
        for sample, each in zip(samples, found.of_each(samples), strict=True)
    ]


def check_streamed(
    source: Readable,
    sample: Sample,
    validate: Validation,
    *,
    skip: bool = False,
    rules: ImageRules = PLAIN,
) -> Fetched:
    """Check a sample that is too large for memory, by reading the ranges that are needed.

    The result has no contents.
    """
    failures: list[Failure] = []
    forms: dict[str, Form | str] = {}
    for part in sample.parts:
        try:
            if parse_extent(part.etag) is None:  # else it is checked as it is read
                info = source.head(part.key)
                if info.size_bytes != part.size_bytes or part.etag not in ("", info.etag):
                    raise changed(part.key, part.size_bytes, info.size_bytes)
            if rules.decoders.decodes(part.ext):
                with io.BufferedReader(part_file(source, part), RANGE_BYTES) as file:
                    form = check_decodable(part.ext, file, validate, where=part.key, rules=rules)
                forms |= {part.ext: form} if form else {}
        except ObjectError as error:
            failures.append(failure_of(part, error, skip=skip))
    return Fetched([], failures, forms)


def failure_of(part: Part, error: ObjectError, *, skip: bool) -> Failure:
    """The failure of one object; ``skip`` as in `fetch`."""
    if skip and error.code == UNDECODABLE:
        error = ObjectError(error.code, error.message, where=error.where)
    return Failure.of(part.key, error)


def found_bad(sample: Sample) -> Failure:
    """The failure of a sample that an earlier run found bad, as that run reported it."""
    assert sample.bad is not None, "it was found bad"
    named = (part.key for part in sample.parts if sample.bad.startswith(f"{printable(part.key)}: "))
    return Failure(key=next(named, sample.key), code=UNDECODABLE, message=sample.bad)


def stream(source: Readable, part: Part) -> Iterator[bytes]:
    """The content of a part, in buffers: exactly as many bytes as planned, or an `ObjectError`."""
    content = _check(source, part)
    with source.open(part.key, if_match=part.etag or None) as reader:
        for buffer in reader:
            data = bytes(buffer)
            content.add(data)
            if content.size_bytes > part.size_bytes:
                break
            yield data
    content.check()


def held(source: Readable, sample: Sample) -> list[Body] | Failure:
    """Read a complete sample that is to be streamed, for formats that need it in memory.

    Returns the failure if an object differs from the plan or cannot be read.
    """
    bodies = []
    for part in sample.parts:
        try:
            data = b"".join(stream(source, part))
        except ObjectError as error:
            return Failure.of(part.key, error)
        bodies.append(Body(data, google_crc32c.value(data)))
    return bodies


def part_file(source: Readable, part: Part) -> ObjectFile:
    """A part as a seekable file: each read is one ranged request."""
    return ObjectFile(source, part.key, part.size_bytes, part.etag)


def _check(source: Readable, part: Part) -> ContentCheck:
    return ContentCheck(source, part.key, part.etag, part.size_bytes)
