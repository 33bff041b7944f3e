"""Checks one shard: the digests of its files, and every part and label by the index.

Every file is read once, from front to back: its sha256 and the CRC-32C of each part that is a range
of it are computed in the same pass. Only parts that the format stores in another form are read once
more, by the format's own reader; so are all samples of a shard that is damaged, to find out which
of them are concerned.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain

import google_crc32c

from larder.errors import DamageError, NotFoundError, ObjectError
from larder.samples.indexed import IndexedSample
from larder.shards.formats.base import Framed, ShardFormat
from larder.shards.model import ShardFile
from larder.store.base import Readable, Store, Writer
from larder.verify.findings import MISSING, difference
from larder.verify.shard_index import ShardIndex, Span

_BUFFER_BYTES = 1 << 20
_READERS_TRIED = 1_000
"""After so many damaged samples in one shard, its remaining samples count as damaged too."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one file of a shard.

    Attributes:
        file: Its place among the files of the shard; the first one if it is the index that differs.
        code: A code of `larder.errors.CODES`.
        message: What is wrong.
        samples: The samples that are concerned, by their place in the shard; sorted.
        sha256: The digest of what is there; empty if that is not known.
    """

    file: int
    code: str
    message: str
    samples: tuple[int, ...]
    sha256: str = ""


def inspect_shard(
    store: Readable,
    keys: Sequence[str],
    files: Sequence[ShardFile],
    samples: ShardIndex | None,
    shard_format: ShardFormat | None,
    told: Callable[[int], None] = lambda size_bytes: None,
    spool: Store | None = None,
) -> list[Fault]:
    """Read a shard, and compare it with what was published.

    Memory: a buffer of the store, and for damaged shards and parts that are no ranges of the file
    what the format's reader holds of one sample.

    Returns:
        At most one fault for each file; empty if everything is as it was published.

    Raises:
        LarderError: The store refuses access or cannot be reached.
    """
    places = samples.places_problem(files[0].bytes) if samples else ""
    index = None if places else samples
    spooled = spool if index and not index.is_ranges else None
    faults: list[Fault] = []
    bad: set[int] = set()
    for number, (key, file) in enumerate(zip(keys, files, strict=True)):
        reading = _Reading(index.spans() if index and number == 0 else iter(()))
        reading.read(store, key, told, copy=spooled.writer(file.name) if spooled else None)
        code, message = reading.difference(file)
        bad |= reading.bad
        if code:
            faults.append(Fault(number, code, message, (), reading.sha256))
    if faults:
        if index and shard_format:
            bad |= _concerned(store, keys[0], index, shard_format, bad)
        if faults[0].file == 0 and faults[0].message == MISSING:
            bad = set(range(len(samples or ())))
        numbers = tuple(sorted(bad))
        return [replace(fault, samples=numbers) for fault in faults]
    if places:
        return [Fault(0, "damage.manifest", places, ())]
    if not bad and index and shard_format and not index.is_ranges:
        place = (spooled, files[0].name) if spooled else (store, keys[0])
        bad = _unreadable(*place, index, shard_format)
    if bad:
        message = "the file is as it was published, but its samples differ from the index"
        return [Fault(0, "damage.record", message, tuple(sorted(bad)))]
    return []


class _Reading:
    """One file read from front to back, and the samples whose ranges of it differ."""

    def __init__(self, spans: Iterator[Span]) -> None:
        self.bad: set[int] = set()
        self.size_bytes = 0
        self.missing = False
        self._refused = ""
        self._hasher = hashlib.sha256()
        self._spans = spans
        self._span = next(spans, None)
        self._crc32c = 0

    def read(
        self,
        store: Readable,
        key: str,
        told: Callable[[int], None],
        *,
        copy: Writer | None = None,
    ) -> None:
        """Read all of it; what comes too late for a range makes its sample bad."""
        try:
            with store.open(key) as reader, copy or nullcontext():
                for buffer in reader:
                    for data in _pieces(memoryview(buffer).cast("B")):
                        self._hasher.update(data)
                        self._add(data)
                        if copy:
                            copy.write(data)
                        told(len(data))
                if copy:
                    copy.commit()
        except NotFoundError:
            self.missing = True
        except ObjectError as error:
            if not _is_damage(store, error):
                raise
            self._refused = error.message
        if self._span is not None:
            self.bad |= {span.sample for span in chain([self._span], self._spans)}

    @property
    def sha256(self) -> str:
        """The digest of what is there; empty if that is not known."""
        return "" if self.missing or self._refused else self._hasher.hexdigest()

    def difference(self, file: ShardFile) -> tuple[str, str]:
        """The code and the message of what is wrong with the file; empty if nothing is."""
        if self.missing:
            return "damage.size", MISSING
        if self._refused:
            return "damage.size", f"the file cannot be read completely: {self._refused}"
        return difference(self.size_bytes, self._hasher.hexdigest(), file.bytes, file.sha256)

    def _add(self, data: memoryview) -> None:
        begin, end = self.size_bytes, self.size_bytes + len(data)
        self.size_bytes = end
        span = self._span
        while span is not None and span.start < end:
            low, high = max(span.start, begin) - begin, min(span.stop, end) - begin
            # The checksum's C code does not accept a memoryview.
            self._crc32c = google_crc32c.extend(self._crc32c, bytes(data[low:high]))
            if span.stop > end:
                break
            if self._crc32c != span.crc32c:
                self.bad.add(span.sample)
            self._crc32c = 0
            span = next(self._spans, None)
        self._span = span


def _is_damage(store: Readable, error: ObjectError) -> bool:
    """Whether it is the file that cannot be read completely, not the store that refuses access."""
    if error.code == "object.unreadable":
        return bool(store.features.local_path)  # such as a bad sector
    return isinstance(error, NotFoundError) or error.code == "object.truncated"


def _pieces(data: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(data), _BUFFER_BYTES):
        yield data[start : start + _BUFFER_BYTES]


def _concerned(
    store: Readable, key: str, samples: ShardIndex, shard_format: ShardFormat, bad: set[int]
) -> set[int]:
    """Samples of a damaged shard that damage between parts, or in other forms of them, concerns.

    Those that are known as ``bad`` are not read again.
    """
    if isinstance(shard_format, Framed):
        framing = _Reading(_frame_spans(samples, shard_format))
        framing.read(store, key, lambda size_bytes: None)
        bad = bad | framing.bad
        if samples.is_ranges:
            return bad
    return bad | _unreadable(store, key, samples, shard_format, bad)


def _frame_spans(samples: Iterable[IndexedSample], shard_format: Framed) -> Iterator[Span]:
    """What is between the parts of samples, as the format would write it."""
    for number, sample in enumerate(samples):
        for start, data in shard_format.framing(sample):
            if data:
                yield Span(start, start + len(data), google_crc32c.value(data), number)


def _unreadable(
    store: Readable,
    key: str,
    samples: ShardIndex,
    shard_format: ShardFormat,
    known: Container[int] = (),
) -> set[int]:
    """The samples that the format's reader cannot read, or that differ from the index.

    Those that are ``known`` to be bad are left out.
    """
    bad: set[int] = set()
    last = max((number for number in range(len(samples)) if number not in known), default=-1)
    left = ((number, sample) for number, sample in enumerate(samples) if number not in known)
    number = -1
    while number < last:
        try:
            with shard_format.open(store, key) as reader:
                for place, sample in left:
                    number = place
                    reader.read(sample)
        except (DamageError, ObjectError) as error:
            if isinstance(error, ObjectError) and not _is_damage(store, error):
                raise
            if number + 1 == 0 or number in bad:  # it cannot even be opened
                return set(range(len(samples)))
            bad.add(number)
        if len(bad) >= _READERS_TRIED:
            return bad | set(range(number, len(samples)))
    return bad
