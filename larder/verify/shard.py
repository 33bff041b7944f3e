"""Checks one shard: the digests of its files, and every part and label by the index.

Every file is read once, from front to back: its sha256 and the CRC-32C of each part that is a range
of it are computed in the same pass. Only parts that the format stores in another form are read once
more, by the format's own reader; so are all samples of a shard that is damaged, to find out which
of them are concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain

import google_crc32c

from larder.errors import DamageError, NotFoundError, ObjectError
from larder.shards.formats.base import ShardFormat
from larder.shards.model import ShardFile
from larder.store.base import Readable, Store
from larder.verify.files import MISSING, compared, is_broken
from larder.verify.findings import SHOWN_SAMPLES, Finding, Role
from larder.verify.shard_index import ShardIndex, Span

_BUFFER_BYTES = 1 << 20
_READERS_TRIED = 1_000
"""After so many damaged samples in one shard, its remaining samples count as damaged too."""


def inspect_shard(
    store: Readable,
    keys: Sequence[str],
    files: Sequence[ShardFile],
    samples: ShardIndex | None,
    shard_format: ShardFormat | None,
    count: Callable[[int], None] = lambda size_bytes: None,
    spool: Store | None = None,
) -> list[Finding]:
    """Read a shard, and compare it with what was published; at most one finding for each file.

    ``samples`` and ``shard_format`` are None if they are not known. What the format's reader has to
    read once more is kept in ``spool``, or else read from the store again. Memory: a buffer of the
    store, and for damaged shards and parts that are no ranges of the file what the format's reader
    holds of one sample.
    """
    places = samples.places_problem(files[0].bytes) if samples else ""
    index = None if places else samples
    spooled = spool if index and not index.is_ranges else None
    wrong: list[tuple[int, str, str, str]] = []
    bad: set[int] = set()
    for number, (key, file) in enumerate(zip(keys, files, strict=True)):
        spans = _Spans(index.spans() if index and number == 0 else iter(()))
        with ExitStack() as stack:
            each: list[Callable[[memoryview], object]] = [spans.add, lambda data: count(len(data))]
            if spooled:
                writer = stack.enter_context(spooled.writer(file.name))
                each.append(writer.write)
            give = _pieces_to(each)
            code, message, digest = compared(store, key, file.bytes, file.sha256, give)
            if spooled:
                writer.commit()
        bad |= spans.bad()
        if code:
            wrong.append((number, code, message, digest))
    if wrong:
        if index and shard_format:
            bad |= _unreadable(store, keys[0], index, shard_format, bad)
        if wrong[0][0] == 0 and wrong[0][2] == MISSING:
            bad = set(range(len(samples or ())))
        return [
            _finding(keys[number], "shard", code, message, samples, bad, digest)
            for number, code, message, digest in wrong
        ]
    if places:
        return [_finding(keys[0], "content", "damage.manifest", places, samples)]
    if not bad and index and shard_format and not index.is_ranges:
        place = (spooled, files[0].name) if spooled else (store, keys[0])
        bad = _unreadable(*place, index, shard_format)
    if bad:
        message = "the file is as it was published, but its samples differ from the index"
        return [_finding(keys[0], "content", "damage.record", message, samples, bad)]
    return []


def _finding(
    key: str,
    role: Role,
    code: str,
    message: str,
    samples: ShardIndex | None,
    bad: Container[int] = (),
    sha256: str = "",
) -> Finding:
    numbers = [number for number in range(len(samples or ())) if number in bad]
    named = samples.named(numbers[:SHOWN_SAMPLES]) if samples else ()
    return Finding(key, role, code, message, named, len(numbers), sha256)


def _pieces_to(each: Sequence[Callable[[memoryview], object]]) -> Callable[[memoryview], None]:
    """Give every function a buffer in pieces, which bounds what it copies."""

    def give(buffer: memoryview) -> None:
        data = memoryview(buffer).cast("B")
        for start in range(0, len(data), _BUFFER_BYTES):
            for function in each:
                function(data[start : start + _BUFFER_BYTES])

    return give


class _Spans:
    """The samples whose ranges of a file that is read from front to back differ."""

    def __init__(self, spans: Iterator[Span]) -> None:
        self._bad: set[int] = set()
        self._size_bytes = 0
        self._spans = spans
        self._span = next(spans, None)
        self._crc32c = 0

    def bad(self) -> set[int]:
        """The samples, with those of ranges that did not come."""
        if self._span is not None:
            self._bad |= {span.sample for span in chain([self._span], self._spans)}
        return self._bad

    def add(self, data: memoryview) -> None:
        """The next bytes of the file."""
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
    samples: ShardIndex,
    shard_format: ShardFormat,
    skip: Container[int] = (),
) -> set[int]:
    """The samples that the format's reader cannot read, or that differ from the index."""
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
