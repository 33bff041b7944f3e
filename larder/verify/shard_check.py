"""Checks one shard: the digests of its files, and every part and label by the index.

Every file is read once, from front to back. The same pass computes its sha256 and the CRC-32C of
each part that is a range of the file. In a tar archive, it also covers the headers of members,
which follow from the index. Samples of other formats are read once more, by the format's own
reader, which compares names and frames. All samples of a damaged shard are read once more, too, to
find the affected samples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain

import google_crc32c

from larder.errors import DamageError, NotFoundError, ObjectError
from larder.manifest.sealed import StoredFile
from larder.segments.index_check import CheckedRange, IndexedColumns
from larder.shards.formats.format_interface import ShardFormat
from larder.store.base import Readable, Store
from larder.verify.verify_job import MISSING, SHOWN_SAMPLES, Finding, Role, compared, is_broken

_BUFFER_BYTES = 1 << 20
_READERS_TRIED = 1_000
"""Number of damaged samples in one shard at which the remaining samples count as damaged."""


def inspect_shard(
    store: Readable,
    files: Sequence[StoredFile],
    samples: IndexedColumns | None,
    shard_format: ShardFormat | None,
    count: Callable[[int], None] = lambda size_bytes: None,
    spool: Store | None = None,
    first: int = 0,
) -> list[Finding]:
    """Read a shard, and compare it with its published state; at most one finding for each file.

    ``first`` is the number of samples of the segment that were planned for earlier shards.

    ``samples`` and ``shard_format`` are None if they are not known. ``spool`` keeps an unframed
    shard for the format's reader; without it, the store is read again. Memory: a buffer of the
    store and, unless the format is framed, the reader's memory for one sample.
    """
    path = files[0].path
    places = samples.places_problem(files[0].bytes, shard_format) if samples else ""
    index = None if places else samples
    again = index is not None and shard_format is not None and not shard_format.framed
    spooled = spool if again else None
    wrong: list[tuple[int, str, str]] = []
    bad: set[int] = set()
    for number, file in enumerate(files):
        spans = _Spans(index.spans() if index and number == 0 else iter(()))
        with ExitStack() as stack:
            each: list[Callable[[memoryview], object]] = [spans.add, lambda data: count(len(data))]
            if spooled:
                writer = stack.enter_context(spooled.writer(file.path))
                each.append(writer.write)
            give = _pieces_to(each)
            code, message = compared(store, file, give)
            if spooled:
                writer.commit()
        bad |= spans.bad()
        if code:
            wrong.append((number, code, message))
    if wrong:
        if index and shard_format:
            bad |= _unreadable(store, path, index, shard_format, bad)
        if wrong[0][0] == 0 and wrong[0][2] == MISSING:
            bad = set(range(len(samples or ())))
        return [
            _finding(files[number].path, "shard", code, message, samples, bad)
            for number, code, message in wrong
        ]
    if places:
        return [_finding(path, "content", "damage.manifest", places, samples)]
    if not bad and again and index and shard_format:
        bad = _unreadable(spooled or store, path, index, shard_format)
    if bad:
        message = "the file is as it was published, but its samples differ from the index"
        return [_finding(path, "content", "damage.record", message, samples, bad)]
    others = shard_format.beside(index, first) if index and shard_format else ()
    message = "the file is as it was published, but does not follow from the samples in the index"
    return [
        Finding(file.path, "content", "damage.manifest", message)
        for file, data in zip(files[1:], others, strict=False)
        if hashlib.sha256(data).hexdigest() != file.sha256
    ]


def _finding(
    key: str,
    role: Role,
    code: str,
    message: str,
    samples: IndexedColumns | None,
    bad: Container[int] = (),
) -> Finding:
    numbers = [number for number in range(len(samples or ())) if number in bad]
    named = samples.named(numbers[:SHOWN_SAMPLES]) if samples else ()
    return Finding(key, role, code, message, named, len(numbers))


def _pieces_to(each: Sequence[Callable[[memoryview], object]]) -> Callable[[memoryview], None]:
    """Give every function a buffer in pieces, to bound its copies."""

    def give(buffer: memoryview) -> None:
        data = memoryview(buffer).cast("B")
        for start in range(0, len(data), _BUFFER_BYTES):
            for function in each:
                function(data[start : start + _BUFFER_BYTES])

    return give


class _Spans:
    """Samples whose ranges differ, in a file that is read from front to back."""

    def __init__(self, spans: Iterator[CheckedRange]) -> None:
        self._bad: set[int] = set()
        self._size_bytes = 0
        self._spans = spans
        self._span = next(spans, None)
        self._crc32c = 0

    def bad(self) -> set[int]:
        """Return the samples, with samples of ranges that did not come."""
        if self._span is not None:
            self._bad |= {span.sample for span in chain([self._span], self._spans)}
        return self._bad

    def add(self, data: memoryview) -> None:
        begin, end = self._size_bytes, self._size_bytes + len(data)
        self._size_bytes = end
        span = self._span
        while span is not None and span.start < end:
            low, high = max(span.start, begin) - begin, min(span.stop, end) - begin
            # The checksum's C code does not accept a memoryview.
            self._crc32c = google_crc32c.extend(self._crc32c, bytes(data[low:high]))
            if span.stop > end:
                break
            if self._crc32c != span.crc32c:
                self._bad.add(span.sample)
            self._crc32c = 0
            span = next(self._spans, None)
        self._span = span


def _unreadable(
    store: Readable,
    key: str,
    samples: IndexedColumns,
    shard_format: ShardFormat,
    skip: Container[int] = (),
) -> set[int]:
    """Return the samples that the format's reader cannot read, or that differ from the index."""
    bad: set[int] = set()
    last = max((number for number in range(len(samples)) if number not in skip), default=-1)
    left = ((number, sample) for number, sample in enumerate(samples) if number not in skip)
    number = -1
    while number < last:
        try:
            with shard_format.open(store, key) as reader:
                for place, sample in left:
                    number = place
                    reader.read(sample)
        except (DamageError, ObjectError) as error:
            is_damage = isinstance(error, DamageError | NotFoundError) or is_broken(store, error)
            if not is_damage:
                raise
            if number + 1 == 0 or number in bad:  # it cannot even be opened
                return set(range(len(samples)))
            bad.add(number)
        if len(bad) >= _READERS_TRIED:
            return bad | set(range(number, len(samples)))
    return bad
