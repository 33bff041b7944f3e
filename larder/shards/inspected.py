"""Checks one shard: the digests of its files, and every part and label by the index.

Every file is read once, from front to back: its sha256 and the CRC-32C of each part that is a range
of it are computed in the same pass. Only parts that the format stores in another form are read once
more, by the format's own reader; so are all samples of a shard that is damaged, to find out which
of them are concerned.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, Protocol

import google_crc32c

from larder.errors import DamageError, NotFoundError, ObjectError
from larder.samples.grouping import LABEL_EXT
from larder.samples.indexed import IndexedSample
from larder.shards.formats.base import Framed, ShardFormat
from larder.shards.model import ShardFile, label_bytes
from larder.store.base import Readable

__all__ = ["MISSING", "Fault", "ShardIndex", "check_labels", "check_places", "inspect_shard"]

MISSING = "the file is missing"

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
        sha256: The digest of what is there; empty if that was not computed.
        samples: The samples that are concerned, by their place in the shard; sorted.
    """

    file: int
    code: str
    message: str
    sha256: str
    samples: tuple[int, ...]


class _Span(NamedTuple):
    """A range of a file, its checksum, and the sample that it belongs to."""

    start: int
    stop: int
    crc32c: int
    sample: int


class ShardIndex(Protocol):
    """The samples of a shard in their order; may be iterated over several times."""

    def __iter__(self) -> Iterator[IndexedSample]:
        """The samples, made as they are needed: a shard may have a million of them."""

    def __len__(self) -> int:
        """Their number."""


def check_places(samples: Iterable[IndexedSample], size_bytes: int) -> str:
    """Check that the index of a shard is possible: places in order, apart, and inside the file.

    Args:
        samples: All samples of the shard in their order.
        size_bytes: Length of its first file.

    Returns:
        What is wrong with the first sample that is not; empty if all are.
    """
    end = 0
    for sample in samples:
        stop = sample.offset + sample.length
        if sample.offset < end or sample.length < 0:
            return f"the index of {sample.key} begins at {sample.offset:,}, before {end:,}"
        inner = sample.offset
        for part in sample.parts:
            if part.length < 0:
                return f"the index says that {sample.key}.{part.ext} has {part.length} bytes"
            if part.offset is None:
                continue
            if part.offset < inner or part.offset + part.length > stop:
                return f"the index of {sample.key}.{part.ext} is outside of its sample"
            inner = part.offset + part.length
            if inner > size_bytes:
                return f"the index of {sample.key}.{part.ext} is beyond the end of the shard"
        end = stop
    return ""


def check_labels(samples: Iterable[IndexedSample], classes: int) -> tuple[str, list[int]]:
    """Compare the labels of samples with their parts ``cls``, and with the classes.

    Args:
        samples: Samples of a shard.
        classes: Number of classes of the version.

    Returns:
        What is wrong with the first that is, and the places of all that are.
    """
    message, found = "", []
    for number, sample in enumerate(samples):
        if sample.label is None:
            continue
        if not 0 <= sample.label < classes:
            message = message or f"{sample.key} has the label {sample.label} of {classes} classes"
            found.append(number)
            continue
        data = label_bytes(sample.label)
        wanted = len(data), google_crc32c.value(data)
        own = [(part.length, part.crc32c) for part in sample.parts if part.ext == LABEL_EXT]
        if own != [wanted]:
            message = message or f"the part cls of {sample.key} is not its label, {sample.label}"
            found.append(number)
    return message, found


def inspect_shard(
    store: Readable,
    keys: Sequence[str],
    files: Sequence[ShardFile],
    samples: ShardIndex | None,
    shard_format: ShardFormat | None,
    told: Callable[[int], None] = lambda size_bytes: None,
) -> list[Fault]:
    """Read a shard, and compare it with what was published.

    Memory: a buffer of the store, and for parts that are no ranges of the file what the format's
    reader holds of one sample.

    Args:
        store: The store of the shard.
        keys: The keys of its files, beginning with the one that has its name.
        files: What was published of them, in the same order.
        samples: Its index; None if that is not known, so that only digests are compared.
        shard_format: Its format; None if that is not known.
        told: Called with the number of bytes read since the last call.

    Returns:
        At most one fault for each file; empty if everything is as it was published.

    Raises:
        LarderError: The store refuses access or cannot be reached.
    """
    places = check_places(samples, files[0].bytes) if samples else ""
    index: ShardIndex = samples if samples and not places else ()
    faults: list[Fault] = []
    bad: set[int] = set()
    for number, (key, file) in enumerate(zip(keys, files, strict=True)):
        spans = _part_spans(index) if number == 0 else iter(())
        reading = _Reading(spans)
        reading.read(store, key, told)
        message = reading.difference(file)
        bad |= reading.bad
        if message:
            code = "damage.digest" if reading.size_bytes == file.bytes else "damage.size"
            faults.append(Fault(number, code, message, reading.sha256, ()))
    if faults:
        bad = _concerned(store, keys[0], index, shard_format, bad)
        if faults[0].file == 0 and faults[0].message == MISSING:
            bad = set(range(len(samples or ())))
        numbers = tuple(sorted(bad))
        return [
            Fault(fault.file, fault.code, fault.message, fault.sha256, numbers) for fault in faults
        ]
    if places:
        return [Fault(0, "damage.manifest", places, "", ())]
    if not bad and index and shard_format and not all(map(_is_range, index)):
        bad = _unreadable(store, keys[0], index, shard_format)
    if bad:
        message = "the file is as it was published, but its samples differ from the index"
        return [Fault(0, "damage.record", message, "", tuple(sorted(bad)))]
    return []


def _is_range(sample: IndexedSample) -> bool:
    return all(part.offset is not None for part in sample.parts)


def _part_spans(samples: Iterable[IndexedSample]) -> Iterator[_Span]:
    for number, sample in enumerate(samples):
        for part in sample.parts:
            if part.offset is not None and part.length:
                yield _Span(part.offset, part.offset + part.length, part.crc32c, number)


class _Reading:
    """One file read from front to back, and the samples whose ranges of it differ.

    Args:
        spans: The ranges, in order and apart.
    """

    def __init__(self, spans: Iterator[_Span]) -> None:
        self.bad: set[int] = set()
        self.size_bytes = 0
        self.missing = False
        self._refused = ""
        self._hasher = hashlib.sha256()
        self._spans = spans
        self._span = next(spans, None)
        self._crc32c = 0

    @property
    def sha256(self) -> str:
        """The digest of what is there; empty if that is unknown."""
        return "" if self.missing or self._refused else self._hasher.hexdigest()

    def read(self, store: Readable, key: str, told: Callable[[int], None]) -> None:
        """Read all of it; what comes too late for a range makes its sample bad."""
        try:
            with store.open(key) as reader:
                for buffer in reader:
                    for data in _pieces(memoryview(buffer).cast("B")):
                        self._hasher.update(data)
                        self._add(data)
                        told(len(data))
        except NotFoundError:
            self.missing = True
        except ObjectError as error:
            broken = error.code == "object.unreadable" and store.features.local_path
            if error.code != "object.truncated" and not broken:
                raise
            self._refused = error.message  # such as a bad sector
        if self._span is not None:
            self.bad |= {span.sample for span in chain([self._span], self._spans)}

    def difference(self, file: ShardFile) -> str:
        """What is wrong with the file; empty if it is as it was published."""
        if self.missing:
            return MISSING
        if self._refused:
            return f"the file cannot be read completely: {self._refused}"
        if self.size_bytes != file.bytes:
            return f"the file has {self.size_bytes:,} bytes instead of {file.bytes:,}"
        if self.sha256 != file.sha256:
            return "the bytes do not match the digest"
        return ""

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


def _pieces(data: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(data), _BUFFER_BYTES):
        yield data[start : start + _BUFFER_BYTES]


def _concerned(
    store: Readable,
    key: str,
    samples: ShardIndex,
    shard_format: ShardFormat | None,
    found: set[int],
) -> set[int]:
    """Which samples of a damaged shard are concerned: also by damage between their parts."""
    bad = set(found)
    if not samples or shard_format is None:
        return bad
    if isinstance(shard_format, Framed):
        framing = _Reading(_frame_spans(samples, shard_format))
        framing.read(store, key, lambda size_bytes: None)
        bad |= framing.bad
    if not all(map(_is_range, samples)):
        bad |= _unreadable(store, key, samples, shard_format)
    return bad


def _frame_spans(samples: Iterable[IndexedSample], shard_format: Framed) -> Iterator[_Span]:
    """What is between the parts of samples, as the format would write it."""
    for number, sample in enumerate(samples):
        for start, data in shard_format.framing(sample):
            if data:
                yield _Span(start, start + len(data), google_crc32c.value(data), number)


def _unreadable(
    store: Readable, key: str, samples: ShardIndex, shard_format: ShardFormat
) -> set[int]:
    """The samples that the format's reader cannot read, or that differ from the index."""
    bad: set[int] = set()
    left = iter(enumerate(samples))
    number = -1
    while number + 1 < len(samples):
        try:
            with shard_format.open(store, key) as reader:
                for place, sample in left:
                    number = place
                    reader.read(sample)
        except (DamageError, NotFoundError):
            if number + 1 == 0 or number in bad:  # it cannot even be opened
                return set(range(len(samples)))
            bad.add(number)
        if len(bad) >= _READERS_TRIED:
            return bad | set(range(number, len(samples)))
    return bad
