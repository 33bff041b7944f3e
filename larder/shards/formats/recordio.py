"""Samples as image records of RecordIO, as Apache MXNet and GluonCV read them.

A shard is a file of records, ``.rec``, with two text files: ``.idx`` has the offset of each record,
``.lst`` its label and name. The data of a record are a header with the label, ``IRHeader`` of
``python/mxnet/recordio.py``, and one part of a sample.

A record is a magic number, a word with its length and a flag, the data, and padding to four bytes.
Data that contains the magic number at a multiple of four bytes is cut there. The number is left
out, and the pieces become parts of one record, with flags for first, middle and last. So the magic
number always marks the beginning of a record or of a part. Format: ``include/dmlc/recordio.h`` and
``src/recordio.cc`` of dmlc-core. All numbers are little-endian.
"""

from __future__ import annotations

import io
import mmap
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.shape import FormatOptions
from larder.errors import ConfigError, DamageError
from larder.samples.indexed import IndexedPart, IndexedSample, check_part, part_place
from larder.samples.naming import LABEL_EXT
from larder.shards.formats.format_interface import ShardFormat, ShardWriter
from larder.shards.hashed_output import HashedOutput
from larder.shards.model import PlannedSample, ShardPlan, label_bytes
from larder.shards.reading.large import giving_back, mapped_content, stream
from larder.shards.reading.ranges import PartReader
from larder.shards.sizes import Sizes
from larder.store.base import Buffer, Readable

_LINE_BYTES = 32
"""Estimate of the bytes that a sample's numbers take in the text files."""

_MAX_LABEL = 1 << 24
"""The largest absolute value of a label: whole numbers up to this limit are exact as float32."""


class RecordIO(ShardFormat):
    suffix = ".rec"
    sizes_known = False  # data that contains the magic number takes more
    numbered = True

    def __init__(self, options: FormatOptions) -> None:
        self._first_record = options.first_record

    def sample_sizes(self, batch: pa.RecordBatch) -> Sizes:
        parts = batch.column("parts")
        counts = pc.list_value_length(parts).to_numpy()
        _refuse(batch, counts != 1, "has several parts, of which a record has one")
        entries = parts.flatten()
        sizes = entries.field("size_bytes").to_numpy().astype(np.int64)
        most = MAX_BYTES - IMAGE_HEADER.size
        _refuse(batch, sizes > most, "has 512 MiB or more, which is too much for a record")
        labels = batch.column("label").fill_null(0).to_numpy().astype(np.int64)
        _refuse(batch, abs(labels) > _MAX_LABEL, "has a label that is not exact as a float32")
        keys = pc.binary_length(batch.column("key")).to_numpy().astype(np.int64)
        record = HEAD_BYTES + IMAGE_HEADER.size + sizes + -sizes % 4
        totals: Sizes = record + keys + _LINE_BYTES
        return totals

    def file_names(self, name: str) -> Sequence[str]:
        """Return the names of the records, their offsets (``.idx``) and their list (``.lst``)."""
        stem = name.removesuffix(".rec")
        return name, f"{stem}.idx", f"{stem}.lst"

    def beside(self, samples: Iterable[IndexedSample], first: int) -> Sequence[bytes]:
        lines = [
            _lines(number, sample.offset, sample.label, f"{sample.key}.{part.ext}")
            for number, sample in enumerate(samples, self._first_record + first)
            for part in sample.parts
            if sample.label is None or part.ext != LABEL_EXT
        ]
        return [b"".join(column) for column in zip(*lines, strict=True)]

    def writer(self, outputs: Sequence[HashedOutput], plan: ShardPlan) -> ImageRecordWriter:
        records, places, names = outputs
        return ImageRecordWriter(records, places, names, self._first_record + plan.first_row)

    def open(self, store: Readable, key: str) -> ImageRecordReader:
        return ImageRecordReader(store, key)


def _refuse(batch: pa.RecordBatch, wrong: np.ndarray, reason: str) -> None:
    rows = np.flatnonzero(wrong)
    if len(rows):
        key = batch.column("key")[int(rows[0])].as_py()
        hint = "exclude such objects with source.exclude, or choose another format"
        message = f"recordio: sample {key!r} {reason}"
        raise ConfigError("config.invalid_value", message, where="shards.format", hint=hint)


class ImageRecordWriter(ShardWriter):
    """A writer of records, of the lines of ``.idx`` (``places``) and of ``.lst`` (``names``)."""

    def __init__(
        self,
        records: HashedOutput,
        places: HashedOutput,
        names: HashedOutput,
        first_record: int,
    ) -> None:
        super().__init__(records)
        self._places = places
        self._names = names
        self._number = first_record

    def append_streamed(self, sample: PlannedSample, source: Readable) -> None:
        """Append a sample through a file: the head of a record depends on the whole content."""
        (part,) = sample.parts
        data, crc32c = mapped_content(stream(source, part), part.size_bytes)
        with giving_back([data]):
            self.append(sample, [(data, crc32c)])

    def append(
        self, sample: PlannedSample, bodies: Sequence[tuple[bytes | mmap.mmap, int]]
    ) -> None:
        ((data, crc32c),) = bodies
        header = _header(sample.label, self._number)
        start = self._output.bytes
        count = self._append_record(header, data)
        offset = start + HEAD_BYTES + len(header) if count == 1 else None
        place = start, self._output.bytes - start
        self._rows.add_parts(sample, place, [offset], [len(data)], [crc32c])
        name = f"{sample.key}.{sample.parts[0].ext}"
        lines = _lines(self._number, start, sample.label, name)
        for output, line in zip((self._places, self._names), lines, strict=True):
            output.append([line], len(line))
        self._number += 1

    def _append_record(self, header: bytes, content: bytes | mmap.mmap) -> int:
        """Append a record without copying its content, and return the number of its parts."""
        first = len(header)
        size = first + len(content)
        pieces: list[Buffer]
        if MAGIC not in header and isinstance(content, bytes) and MAGIC not in content:
            pieces = [part_head(0, size, size), header, content, bytes(-size % 4)]
            self._output.append(pieces, HEAD_BYTES + size + -size % 4)
            return 1
        view = memoryview(content)
        # The header's length is a multiple of four, so no magic number spans its end.
        cut_at = chain(cuts(header), (first + at for at in cuts(content)))
        count = 0
        for start, stop in parts_of(size, cut_at):
            slices = header[start:stop], view[max(0, start - first) : max(0, stop - first)]
            pad = bytes((start - stop) % 4)
            pieces = [part_head(start, stop, size), *slices, pad]
            self._output.append(pieces, HEAD_BYTES + stop - start + len(pad))
            count += 1
        return count


class ImageRecordReader(PartReader):
    """A reader of samples in a file of records.

    If all parts of a sample are read, the whole record is compared, except its number.
    """

    def read(
        self, sample: IndexedSample, parts: Sequence[IndexedPart] | None = None
    ) -> dict[str, bytes]:
        if parts is not None and all(part.offset is not None for part in parts):
            return super().read(sample, parts)
        wanted = sample.parts if parts is None else parts
        header, data = self._read_record(sample)
        contents = {}
        for part in wanted:
            if part.ext == LABEL_EXT and sample.label is not None:
                contents[part.ext] = self._label(part, sample, header)
            else:
                contents[part.ext] = check_part(part, data, sample, self.url)
        if parts is None and _known(header) != _known(_header(sample.label, 0)):
            place, message = f"{self.url}: {sample.key}", "its record has another header"
            raise DamageError("damage.record", message, where=place)
        return contents

    def _read_record(self, sample: IndexedSample) -> tuple[bytes, bytes]:
        try:
            return _header_and_content(self.read_range(sample.offset, sample.length))
        except ValueError as error:
            place, message = f"{self.url}: {sample.key}", f"its record is damaged: {error}"
            raise DamageError("damage.record", message, where=place) from None

    def _label(self, part: IndexedPart, sample: IndexedSample, header: bytes) -> bytes:
        if header[:8] != _header(sample.label, 0)[:8]:
            message = "its record has another label than the index"
            place = part_place(self.url, sample, part.ext)
            raise DamageError("damage.record", message, where=place)
        assert sample.label is not None, "it has a label"
        return check_part(part, label_bytes(sample.label), sample, self.url)


def _lines(number: int, start: int, label: int | None, name: str) -> tuple[bytes, bytes]:
    """Return the lines of a record in ``.idx`` and ``.lst``."""
    shown = int(NO_LABEL) if label is None else label
    return b"%d\t%d\n" % (number, start), f"{number}\t{shown}\t{name}\n".encode()


def _header(label: int | None, number: int) -> bytes:
    return IMAGE_HEADER.pack(0, NO_LABEL if label is None else label, number, 0)


def _known(header: bytes) -> tuple[bytes, bytes]:
    """Return the parts of a header that the index determines: all except the record's number."""
    return header[:8], header[16:]


def _header_and_content(record: bytes) -> tuple[bytes, bytes]:
    """Return header and content; raise ValueError unless the bytes are a record."""
    header, content = b"", io.BytesIO()
    for piece in record_data(record):
        missing = IMAGE_HEADER.size - len(header)
        header += piece[:missing]
        content.write(piece[missing:])
    return header, content.getvalue()


MAGIC = struct.pack("<I", 0xCED7_230A)

HEAD_BYTES = 8
"""Bytes of the head before each part of a record."""

MAX_BYTES = (1 << 29) - 1
"""Maximum length of a record's data: the word has 29 bits for the length."""

IMAGE_HEADER = struct.Struct("<IfQQ")
"""Flag (0: one label), label as float32, number of the record, and an unused number, always 0."""

NO_LABEL = -1.0
"""The label in the record of a sample without a label."""

_WINDOW_BYTES = 1 << 20

_WORD = struct.Struct("<I")
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)


def cuts(data: bytes | mmap.mmap) -> Iterator[int]:
    """Yield the cuts of data: offsets of the magic number that are multiples of four."""
    for first in range(0, len(data), _WINDOW_BYTES):
        window = data[first : first + _WINDOW_BYTES + len(MAGIC) - 1]  # bytes are searched faster
        at = window.find(MAGIC)
        while at >= 0:
            if at % 4 == 0:
                yield first + at
            at = window.find(MAGIC, at + 1)


def parts_of(size_bytes: int, cut_at: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield start and stop of each part in a record's data, given the cuts."""
    start = 0
    for at in cut_at:
        yield start, at
        start = at + len(MAGIC)
    yield start, size_bytes


def part_head(start: int, stop: int, size_bytes: int) -> bytes:
    """Return the head of a part, given the part's start and stop in the record's data."""
    flag = _flag(first=start == 0, last=stop == size_bytes)
    return MAGIC + _WORD.pack(flag << 29 | stop - start)


def record_data(record: bytes) -> Iterator[bytes | memoryview]:
    """Yield the data of a record in pieces, without a copy."""
    view, at = memoryview(record), 0
    while at < len(view) or not at:
        if view[at : at + 4] != MAGIC or len(view) < at + HEAD_BYTES:
            raise ValueError("no magic number where a part begins")
        (word,) = _WORD.unpack_from(view, at + 4)
        first, start, size = at == 0, at + HEAD_BYTES, word & MAX_BYTES
        stop = start + size
        at = stop + -size % 4
        if at > len(view):
            raise ValueError("it ends too early")
        if word >> 29 != _flag(first=first, last=at == len(view)):
            raise ValueError("its parts are not those of one record")
        if any(view[stop:at]):
            raise ValueError("its padding is not zeros")
        if not first:
            yield MAGIC
        yield view[start:stop]


def _flag(*, first: bool, last: bool) -> int:
    if first:
        return _WHOLE if last else _FIRST
    return _LAST if last else _MIDDLE
