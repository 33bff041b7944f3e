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

import google_crc32c

from larder.disk import disk_errors
from larder.errors import Failure, ObjectError
from larder.manifest.extents import parse_extent
from larder.samples.image_parts import Form, is_image
from larder.shards.images.check import PLAIN, ImageRules, check_decodable, stored_image
from larder.shards.model import Part, PlannedSample
from larder.shards.reading.fetch import Body, Fetched, failure_of
from larder.store.base import Features, ObjectInfo, Readable, Reader
from larder.store.delegate import BytesReader
from larder.store.etags import StreamCheck, changed
from larder.store.seekable import ObjectFile

RANGE_BYTES = 1 << 20
"""Bytes of a large object to read at a time."""


def check_streamed(
    source: Readable,
    sample: PlannedSample,
    rules: ImageRules = PLAIN,
) -> Fetched:
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
                with io.BufferedReader(part_file(source, part), RANGE_BYTES) as file:
                    form = check_decodable(
                        part.ext, file, rules.validate, where=part.key, rules=rules
                    )
                forms |= {part.ext: form} if form else {}
        except ObjectError as error:
            failures.append(failure_of(part, error, rules))
    return Fetched([], failures, forms)


def stream(source: Readable, part: Part) -> Iterator[bytes]:
    """Yield the content of a part in buffers; raise `ObjectError` unless it is as planned."""
    content = StreamCheck(source, part.key, part.etag, part.size_bytes)
    with source.open(part.key, if_match=part.etag or None) as reader:
        for buffer in reader:
            data = bytes(buffer)
            content.add(data)
            if content.size_bytes > part.size_bytes:
                break
            yield data
    content.check()


def read_streamed(source: Readable, sample: PlannedSample) -> list[Body] | Failure:
    """Stream a complete sample into memory, for formats that cannot write it in pieces."""
    bodies = []
    for part in sample.parts:
        try:
            data = b"".join(stream(source, part))
        except ObjectError as error:
            return Failure.of(part.key, error)
        bodies.append(Body(data, google_crc32c.value(data)))
    return bodies


def part_file(source: Readable, part: Part) -> ObjectFile:
    """Open a part as a seekable file: each read is one ranged request."""
    return ObjectFile(source, part.key, part.size_bytes, part.etag)


def transformed_sample(
    source: Readable, sample: PlannedSample, rules: ImageRules
) -> tuple[PlannedSample, Readable, list[Failure]]:
    """Transform the images of a sample that is too large for memory.

    Each object is read twice: from front to back, to compare it with the plan, and in ranges. The
    result is the sample with the stored sizes, a store with the transformed images, and failures.
    """
    contents: dict[str, bytes] = {}
    parts = list(sample.parts)
    failures = []
    for place, part in enumerate(sample.parts):
        if not is_image(part.ext):
            continue
        try:
            for _ in stream(source, part):
                pass
            with io.BufferedReader(part_file(source, part), RANGE_BYTES) as file:
                data = stored_image(part.ext, file, where=part.key, rules=rules)
            assert data is not None, "images are transformed"
        except ObjectError as error:
            failures.append(failure_of(part, error, rules))
            continue
        contents[part.key] = data
        parts[place] = part._replace(size_bytes=len(data))
    etags = {part.key: part.etag for part in parts}
    return sample._replace(parts=tuple(parts)), _Transformed(source, contents, etags), failures


class _Transformed(Readable):
    def __init__(
        self, inner: Readable, contents: Mapping[str, bytes], etags: Mapping[str, str]
    ) -> None:
        self._inner = inner
        self._contents = contents
        self._etags = etags

    @property
    def url(self) -> str:
        return self._inner.url

    @property
    def features(self) -> Features:
        """The features of the store, except that etags do not match the transformed contents."""
        return replace(self._inner.features, etag_is_md5=False)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        return self._inner.list(prefix, start_after=start_after)

    def head(self, key: str) -> ObjectInfo:
        """Return the new size of an object, with its old etag."""
        data = self._contents.get(key)
        if data is None:
            return self._inner.head(key)
        return ObjectInfo(key, len(data), self._etags[key], 0)

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        data = self._contents.get(key)
        if data is None:
            return self._inner.open(key, offset=offset, length=length, if_match=if_match)
        stop = None if length is None else offset + length
        return BytesReader(self.head(key), memoryview(data)[offset:stop])


_LEAST_BYTES = 1 << 20
"""Shorter contents are not worth a file."""

_GIVE_BACK_SECONDS = 0.002
"""A core copies a few MB in this time."""


def mapped_content(pieces: Iterable[bytes], size_bytes: int) -> tuple[bytes | mmap.mmap, int]:
    """Return a part's content and CRC-32C; a large content is in a mapped file without a name."""
    crc32c = 0
    if size_bytes < _LEAST_BYTES:
        data = b"".join(pieces)
        return data, google_crc32c.value(data)
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
