"""Samples as image records of RecordIO, as Apache MXNet and GluonCV read them.

A shard is a file of records, ``.rec``, with two files of text: ``.idx`` says where each record is,
``.lst`` what it is. The data of a record are a header with the label, which is ``IRHeader`` of
``python/mxnet/recordio.py``, and one part of a sample.

A record is a magic number, a word with its length and a flag, the data, and padding to four bytes.
Data that contains the magic number at a multiple of four bytes is cut there: the number is left
out, and the pieces are parts of one record, whose flags say first, middle and last. So whoever
looks for the magic number finds the beginning of a record or of a part of one. Format:
``include/dmlc/recordio.h`` and ``src/recordio.cc`` of dmlc-core. All numbers are little-endian.
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
from larder.errors import ConfigError, DamageError, Failure, ObjectError
from larder.samples.indexed import IndexedPart, IndexedSample, check_part, part_place
from larder.samples.naming import LABEL_EXT
from larder.shards.formats.base import ShardFormat, ShardWriter
from larder.shards.model import PlannedSample, ShardPlan, label_bytes
from larder.shards.output import HashedOutput
from larder.shards.reading.fetch import Body
from larder.shards.reading.large import giving_back, mapped_content, stream
from larder.shards.reading.ranges import PartReader
from larder.shards.sizes import Sizes
from larder.store.base import Buffer, Readable

_LINE_BYTES = 32
"""About what the numbers of a sample take in the files of text."""

_MAX_LABEL = 1 << 24
"""Whole numbers up to this one are float32 without being rounded."""


class RecordIO(ShardFormat):
    suffix = ".rec"
    sizes_known = False  # data that contains the magic number takes more

    def __init__(self, options: FormatOptions) -> None:
        self._first_record = options.first_record

    def sample_sizes(self, batch: pa.RecordBatch) -> Sizes:
        """Bytes of the samples' records and their lines of text, nearly."""
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
        """The records, where they are, and what they are."""
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
    """``places`` gets the lines of ``.idx``: the number of a record, a tab, its offset; ``names``
    those of ``.lst``: the number of a record, its label and its name.
    """

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

    def append(self, sample: PlannedSample, bodies: Sequence[Body]) -> None:
        (body,) = bodies
        self._append(sample, body.data, body.crc32c)

    def append_streamed(self, sample: PlannedSample, source: Readable) -> Failure | None:
        """Through a file: how the record begins depends on all of it."""
        (part,) = sample.parts
        try:
            data, crc32c = mapped_content(stream(source, part), part.size_bytes)
        except ObjectError as error:
            return Failure.of(part.key, error)
        with giving_back([data]):
            self._append(sample, data, crc32c)
        return None

    def _append(self, sample: PlannedSample, data: bytes | mmap.mmap, crc32c: int) -> None:
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
        # The header's length is a multiple of four, so the number cannot be across its end.
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
    """Reads samples from a file of records.

    A label is that of the index, after comparing it with the record's header. A sample that is read
    with all its parts has a record as it was written, except that its number may be any.
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
    """The lines of a record in ``.idx`` and ``.lst``."""
    shown = int(NO_LABEL) if label is None else label
    return b"%d\t%d\n" % (number, start), f"{number}\t{shown}\t{name}\n".encode()


def _header(label: int | None, number: int) -> bytes:
    return IMAGE_HEADER.pack(0, NO_LABEL if label is None else label, number, 0)


def _known(header: bytes) -> tuple[bytes, bytes]:
    """What follows from the index: all of a header but the number of the record."""
    return header[:8], header[16:]


def _header_and_content(record: bytes) -> tuple[bytes, bytes]:
    """Header and content of a record; raises ValueError if it is none."""
    header, content = b"", io.BytesIO()
    for piece in record_data(record):
        missing = IMAGE_HEADER.size - len(header)
        header += piece[:missing]
        content.write(piece[missing:])
    return header, content.getvalue()


MAGIC = struct.pack("<I", 0xCED7_230A)

HEAD_BYTES = 8
"""What precedes each part of a record."""

MAX_BYTES = (1 << 29) - 1
"""Maximum length of the data of a record: the word has 29 bits for it."""

IMAGE_HEADER = struct.Struct("<IfQQ")
"""Flag (0: one label), label as float32, number of the record, and another number, which is 0."""

NO_LABEL = -1.0
"""The label of a sample without one."""

_WINDOW_BYTES = 1 << 20

_WORD = struct.Struct("<I")
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)


def cuts(data: bytes | mmap.mmap) -> Iterator[int]:
    """Where data is cut: the offsets of the magic number that are multiples of four."""
    for first in range(0, len(data), _WINDOW_BYTES):
        window = data[first : first + _WINDOW_BYTES + len(MAGIC) - 1]  # bytes are searched faster
        at = window.find(MAGIC)
        while at >= 0:
            if at % 4 == 0:
                yield first + at
            at = window.find(MAGIC, at + 1)


def parts_of(size_bytes: int, cut_at: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Where the parts of a record begin and end in its data, given where it is cut."""
    start = 0
    for at in cut_at:
        yield start, at
        start = at + len(MAGIC)
    yield start, size_bytes


def part_head(start: int, stop: int, size_bytes: int) -> bytes:
    """What precedes a part of a record, given where it begins and ends in the record's data."""
    flag = _flag(first=start == 0, last=stop == size_bytes)
    return MAGIC + _WORD.pack(flag << 29 | stop - start)


def record_data(record: bytes) -> Iterator[bytes | memoryview]:
    """The data of a record in pieces, without a copy."""
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
