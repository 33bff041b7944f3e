"""Samples that are too large for memory: checked in ranges, streamed, or kept in a file.

Images to transform are in memory one at a time, and afterwards in their stored form.
"""

from __future__ import annotations

import io
import mmap
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import google_crc32c

from larder.disk import disk_errors
from larder.errors import Failure, ObjectError
from larder.manifest.extents import parse_extent
from larder.samples.image_parts import Form, is_image
from larder.shards.images.check import PLAIN, ImageRules, check_decodable, stored_image
from larder.shards.model import Part, PlannedSample
from larder.shards.reading.fetch import Fetched, failure_of
from larder.store.base import Features, ObjectInfo, Readable, Reader, ReadOptions
from larder.store.delegate import BytesReader, DelegatingReadable
from larder.store.etags import StreamCheck, changed
from larder.store.seekable import ObjectFile

if TYPE_CHECKING:
    from typing import Unpack

RANGE_BYTES = 1 << 20
"""Bytes of a large object to read at a time."""


def check_streamed(source: Readable, sample: PlannedSample, rules: ImageRules = PLAIN) -> Fetched:
    """Check a sample that is too large for memory, by reading only the needed ranges."""
    failures: list[Failure] = []
    forms: dict[str, Form | str] = {}
    for part in sample.parts:
        try:
            if parse_extent(part.etag) is None:  # a derived object is checked while it is read
                info = source.head(part.key)
                if info.size_bytes != part.size_bytes or part.etag not in ("", info.etag):
                    raise changed(part.key, part.size_bytes, info.size_bytes)
            if rules.decoders.decodes(part.ext):
                with _part_file(source, part) as file:
                    form = check_decodable(
                        part.ext, file, rules.validate, where=part.key, rules=rules
                    )
                forms |= {part.ext: form} if form else {}
        except ObjectError as error:
            failures.append(failure_of(part, error, rules))
    return Fetched([], failures, forms)


class UnreadablePartError(Exception):
    """An object that cannot be read, or is not as planned."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def stream(source: Readable, part: Part) -> Iterator[bytes]:
    """Yield the content of a part in buffers; `UnreadablePartError` unless it is as planned."""
    content = StreamCheck(source, part.key, part.etag, part.size_bytes)
    try:
        with source.open(part.key, if_match=part.etag or None) as reader:
            for buffer in reader:
                data = bytes(buffer)
                content.add(data)
                if content.size_bytes > part.size_bytes:
                    break
                yield data
        content.check()
    except ObjectError as error:
        raise UnreadablePartError(Failure.of(part.key, error)) from error


def _part_file(source: Readable, part: Part) -> io.BufferedReader:
    """Open a part as a seekable file: each read is one ranged request."""
    file = ObjectFile(source, part.key, part.size_bytes, part.etag)
    return io.BufferedReader(file, RANGE_BYTES)


def transformed_sample(
    source: Readable, sample: PlannedSample, rules: ImageRules
) -> tuple[PlannedSample, Readable, list[Failure]]:
    """Transform the images of a sample that is too large for memory.

    Each image is read twice: from front to back, to compare it with the plan, and in ranges.
    Returns the sample with the stored sizes, a store with the transformed images, and failures.
    """
    images: dict[str, tuple[str, bytes]] = {}
    parts = list(sample.parts)
    failures = []
    for place, part in enumerate(sample.parts):
        if not is_image(part.ext):
            continue
        try:
            for _ in stream(source, part):
                pass
            with _part_file(source, part) as file:
                data = stored_image(part.ext, file, where=part.key, rules=rules)
            assert data is not None, "images are transformed"
        except UnreadablePartError as error:
            failures.append(error.failure)
            continue
        except ObjectError as error:
            failures.append(failure_of(part, error, rules))
            continue
        images[part.key] = part.etag, data
        parts[place] = part._replace(size_bytes=len(data))
    return sample._replace(parts=tuple(parts)), _Transformed(source, images), failures


class OtherContents(DelegatingReadable):
    """A store in which some objects have other contents than their etags say."""

    get = Readable.get  # by way of `open`

    @property
    def features(self) -> Features:
        return replace(self.inner.features, etag_is_md5=False)


class _Transformed(OtherContents):
    """A store with the etags and transformed contents of ``images``, by key."""

    def __init__(self, inner: Readable, images: Mapping[str, tuple[str, bytes]]) -> None:
        super().__init__(inner)
        self._images = images

    def head(self, key: str) -> ObjectInfo:
        if key not in self._images:
            return super().head(key)
        etag, data = self._images[key]
        return ObjectInfo(key, len(data), etag, 0)

    def open(self, key: str, **options: Unpack[ReadOptions]) -> Reader:
        if key not in self._images:
            return super().open(key, **options)
        offset, length = options.get("offset", 0), options.get("length")
        stop = None if length is None else offset + length
        return BytesReader(self.head(key), memoryview(self._images[key][1])[offset:stop])


_LEAST_BYTES = 1 << 20
"""Shorter contents are not worth a file."""

_GIVE_BACK_SECONDS = 0.002
"""A core copies a few MB in this time."""


def mapped_content(pieces: Iterable[bytes], size_bytes: int) -> tuple[bytes | mmap.mmap, int]:
    """Return a part's content and CRC-32C; a large content is in a mapped file without a name."""
    if size_bytes < _LEAST_BYTES:
        data = b"".join(pieces)
        return data, google_crc32c.value(data)
    crc32c = 0
    folder = Path(tempfile.gettempdir())
    with disk_errors(folder):
        file = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
    with file:
        for piece in pieces:
            crc32c = google_crc32c.extend(crc32c, piece)
            with disk_errors(folder):
                file.write(piece)
        with disk_errors(folder):
            file.flush()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), crc32c


@contextmanager
def giving_back(contents: Iterable[object]) -> Iterator[None]:
    """Release the memory of mapped contents again and again while the block reads them."""
    mapped = [each for each in contents if isinstance(each, mmap.mmap)]
    if not mapped:
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_give_back, args=(mapped, over), name="larder-give-back")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _give_back(mapped: Sequence[mmap.mmap], over: threading.Event) -> None:
    while not over.wait(_GIVE_BACK_SECONDS):
        for each in mapped:
            each.madvise(mmap.MADV_DONTNEED)
