"""Samples as records of ``tf.train.Example``, as TensorFlow, DALI and TFDS read them.

A record is its length (u64), the masked CRC-32C of these eight bytes, the data, and the masked
CRC-32C of the data; all numbers are little-endian. Format: "TFRecord and tf.train.Example" in
TensorFlow's documentation; ``tensorflow/core/lib/hash/crc32c.h`` for the mask.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from itertools import chain, groupby
from operator import itemgetter

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.shape import FormatOptions
from larder.errors import DamageError, Failure, ObjectError
from larder.manifest.spool import Spool
from larder.samples.indexed import IndexedPart, IndexedSample, check_part, part_place
from larder.samples.naming import LABEL_EXT
from larder.shards.formats.format_interface import ShardFormat, ShardWriter
from larder.shards.formats.tfrecord.example import Skeletons, extensions
from larder.shards.formats.tfrecord.features import MOST_TEXT_BYTES
from larder.shards.hashed_output import HashedOutput
from larder.shards.members import planned_members, with_labels
from larder.shards.model import Part, PlannedSample, ShardPlan, label_bytes
from larder.shards.reading.fetch import Body, Contents
from larder.shards.reading.large import stream
from larder.shards.reading.ranges import PartReader
from larder.shards.reading.readahead import Lot
from larder.shards.sizes import Sizes
from larder.store.base import Readable

HEADER_BYTES = 12
FOOTER_BYTES = 4

FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
"""Bytes of a record besides its data."""

_MASK = 0xA282_EAD8

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")


@lru_cache(4096)
def record_header(size_bytes: int) -> bytes:
    length = _LENGTH.pack(size_bytes)
    return length + masked(google_crc32c.value(length))


def masked(crc32c: int) -> bytes:
    """Return a checksum in the masked form of TFRecord files."""
    rotated = crc32c >> 15 | crc32c << 17 & 0xFFFF_FFFF
    return _CHECKSUM.pack(rotated + _MASK & 0xFFFF_FFFF)


def all_masked(checksums: Sequence[int]) -> list[bytes]:
    numbers = np.array(checksums, np.uint32)
    words = (numbers >> 15 | numbers << 17) + np.uint32(_MASK)
    return [
        word for (word,) in struct.iter_unpack(f"{FOOTER_BYTES}s", words.astype("<u4").tobytes())
    ]


class DaliTFRecordIndex:
    kind = "dali"

    def file_name(self, shard: str) -> str:
        return f"{shard.removesuffix('.tfrecord')}.idx"

    def content(self, rows: Spool) -> Iterator[bytes]:
        return map(_lines, rows.read())


def _lines(rows: pa.RecordBatch) -> bytes:
    columns = [rows.column(name).cast(pa.string()) for name in ("offset", "length")]
    lines = pc.binary_join_element_wise(*columns, " ")
    text = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")
    return f"{text[0].as_py()}\n".encode()


class TFRecord(ShardFormat):
    """``shards.format: tfrecord``; a feature with class names needs ``classes``."""

    suffix = ".tfrecord"
    counted = True
    indexes = (DaliTFRecordIndex(),)

    def __init__(self, options: FormatOptions) -> None:
        self._skeletons = Skeletons(options)
        self.sizes_known = self._skeletons.sizes_known

    def sample_sizes(self, batch: pa.RecordBatch) -> Sizes:
        return self._skeletons.sizes(batch) + FRAME_BYTES

    def writer(self, outputs: Sequence[HashedOutput], plan: ShardPlan) -> ExampleWriter:
        (output,) = outputs
        return (PlainWriter if self.sizes_known else ExampleWriter)(output, self._skeletons)

    def open(self, store: Readable, key: str) -> ExampleReader:
        return ExampleReader(store, key, self._skeletons)


class ExampleWriter(ShardWriter):
    """A writer of records in which parts may become numbers; not all contents are valid numbers."""

    def __init__(self, output: HashedOutput, skeletons: Skeletons) -> None:
        super().__init__(output)
        self._skeletons = skeletons

    def append(self, sample: PlannedSample, bodies: Sequence[Body]) -> Failure | None:
        contents, checksums = zip(*bodies, strict=True)
        sizes = [*map(len, contents)]
        try:
            skeleton, offsets, size_bytes = self._skeletons.of(sample, sizes, contents)
        except ObjectError as error:
            return Failure.of(error.where, error)
        pieces = [piece if isinstance(piece, bytes) else contents[piece] for piece in skeleton]
        crc32c = reduce(google_crc32c.extend, pieces, 0)
        start = self._output.bytes
        length = size_bytes + FRAME_BYTES
        self._output.append([record_header(size_bytes), *pieces, masked(crc32c)], length)
        places = (start + HEADER_BYTES + offset for offset in offsets)
        self._rows.add_parts(sample, (start, length), places, sizes, checksums)
        return None

    def append_streamed(self, sample: PlannedSample, source: Readable) -> Failure | None:
        """Append a sample buffer by buffer; only parts that become numbers are kept in memory."""
        parts = sample.parts
        sizes = [part.size_bytes for part in parts]
        try:
            skeleton = self._skeletons.of(sample, sizes, self._texts(sample, source))
        except ObjectError as error:
            return Failure.of(error.where, error)
        start = self._output.bytes
        self._put(record_header(skeleton.size_bytes))
        checksums, crc32c = [0] * len(parts), 0
        for piece in skeleton.pieces:
            if isinstance(piece, bytes):
                crc32c = google_crc32c.extend(crc32c, piece)
                self._put(piece)
                continue
            checksums[piece] = 0  # several features may have the part
            for buffer in stream(source, parts[piece]):
                checksums[piece] = google_crc32c.extend(checksums[piece], buffer)
                crc32c = google_crc32c.extend(crc32c, buffer)
                self._put(buffer)
        self._put(masked(crc32c))
        places = (start + HEADER_BYTES + offset for offset in skeleton.offsets)
        length = self._output.bytes - start
        self._rows.add_parts(sample, (start, length), places, sizes, checksums)
        return None

    def _texts(self, sample: PlannedSample, source: Readable) -> list[bytes]:
        wanted = self._skeletons.number_parts(sample)
        return [
            _text(source, part) if number in wanted else b""
            for number, part in enumerate(sample.parts)
        ]


class PlainWriter(ExampleWriter):
    """A writer of records in which no part becomes numbers."""

    least_together = 24

    def append_all(self, lot: Lot, contents: Contents) -> None:
        first = 0
        for exts, group in groupby(lot.samples, extensions):
            alike = list(group)
            last = first + len(alike) * len(exts)
            data, checksums = contents.data[first:last], contents.checksums[first:last]
            self._append_alike(exts, alike, Contents(data, checksums))
            first = last

    def _append_alike(
        self, exts: tuple[str, ...], samples: Sequence[PlannedSample], contents: Contents
    ) -> None:
        count = len(exts)
        of_parts = [contents.data[part::count] for part in range(count)]
        pieces, parts = self._skeletons.pieces(exts, samples, of_parts)
        checksums = [reduce(google_crc32c.extend, each, 0) for each in zip(*pieces, strict=True)]
        lengths = np.array([list(map(len, column)) for column in pieces], np.int64)
        sizes = lengths.sum(0)
        ends = self._output.bytes + np.cumsum(sizes + FRAME_BYTES)
        headers = map(record_header, sizes.tolist())
        records = zip(headers, *pieces, all_masked(checksums), strict=True)
        self._output.append(list(chain.from_iterable(records)), int(ends[-1]) - self._output.bytes)
        starts = ends - sizes - FRAME_BYTES
        offsets = np.zeros((len(samples), count), np.int64)
        for number, part in enumerate(parts):
            offsets[:, part] = starts + HEADER_BYTES + lengths[: 2 * number + 1].sum(0)
        members = planned_members(samples)
        every = with_labels(members.keys, samples, contents)
        places = iter(offsets.reshape(-1).tolist())
        nullable = [None if key is None else next(places) for key in members.keys]
        keys, labels = [each.key for each in samples], [each.label for each in samples]
        self._rows.add_all(
            (keys, starts.tolist(), (ends - starts).tolist(), labels),
            (members.exts, members.keys, members.etags, nullable, members.sizes, every.checksums),
            members.counts(),
        )


def _text(source: Readable, part: Part) -> bytes:
    """Read a part that becomes numbers, or the beginning of a part that is too long."""
    data = b""
    for buffer in stream(source, part):
        data += buffer
        if len(data) > MOST_TEXT_BYTES:
            break
    return data


class ExampleReader(PartReader):
    """A reader of samples in a file of records.

    If all parts of a sample or its label are read, both checksums of its record are compared, and
    the record with the writer's.
    """

    def __init__(self, store: Readable, key: str, skeletons: Skeletons) -> None:
        super().__init__(store, key)
        self._skeletons = skeletons

    def read(
        self, sample: IndexedSample, parts: Sequence[IndexedPart] | None = None
    ) -> dict[str, bytes]:
        if parts is not None and all(part.offset is not None for part in parts):
            return super().read(sample, parts)
        contents = self._read_record(sample)
        wanted = sample.parts if parts is None else parts
        return {part.ext: contents[part.ext] for part in wanted}

    def _read_record(self, sample: IndexedSample) -> dict[str, bytes]:
        """Read all parts, and compare the record with its checksums and with the label."""
        place = f"{self.url}: {sample.key}"
        start, end = sample.offset + HEADER_BYTES, sample.offset + sample.length - FOOTER_BYTES
        if start > end:
            raise DamageError("damage.manifest", "the index has no record for it", where=place)
        if self.read_range(sample.offset, HEADER_BYTES) != record_header(end - start):
            message = "its record does not have the length that is in the index"
            raise DamageError("damage.record", message, where=place)
        contents: dict[str, bytes] = {}
        crc32c = 0
        stored = [(part.offset, part) for part in sample.parts if part.offset is not None]
        for offset, part in sorted(stored, key=itemgetter(0)):
            between = self._read_until(start, offset, place)
            data = self.read_range(offset, part.length)
            contents[part.ext] = check_part(part, data, sample, self.url)
            crc32c = google_crc32c.extend(google_crc32c.extend(crc32c, between), data)
            start = offset + part.length
        crc32c = google_crc32c.extend(crc32c, self._read_until(start, end, place))
        if self.read_range(end, FOOTER_BYTES) != masked(crc32c):
            raise DamageError("damage.record", "its record differs from its checksum", where=place)
        self._check_made(sample, contents, crc32c, place)
        for part in sample.parts:
            if part.offset is None:
                contents[part.ext] = self._label(part, sample)
        return contents

    def _check_made(
        self, sample: IndexedSample, contents: Mapping[str, bytes], crc32c: int, place: str
    ) -> None:
        """Refuse a record that the writer would not make of the sample."""
        there = [part for part in sample.parts if part.offset is not None]
        parts = tuple(Part(part.ext, "", part.length, "") for part in there)
        data = [contents[part.ext] for part in parts]
        try:
            planned = PlannedSample("", sample.key, sample.label, parts)
            pieces, offsets, _ = self._skeletons.of(planned, [*map(len, data)], data)
        except ObjectError as error:
            raise DamageError("damage.record", error.message, where=place) from None
        start = sample.offset + HEADER_BYTES
        made = (piece if isinstance(piece, bytes) else data[piece] for piece in pieces)
        same = [part.offset for part in there] == [start + offset for offset in offsets]
        if not same or reduce(google_crc32c.extend, made, 0) != crc32c:
            message = "its record is not that of the key, label and parts in the index"
            raise DamageError("damage.record", message, where=place)

    def _read_until(self, start: int, stop: int, place: str) -> bytes:
        if start > stop:
            raise DamageError("damage.manifest", "its parts overlap in the index", where=place)
        return self.read_range(start, stop - start)

    def _label(self, part: IndexedPart, sample: IndexedSample) -> bytes:
        if part.ext != LABEL_EXT or sample.label is None:
            place = part_place(self.url, sample, part.ext)
            raise DamageError("damage.manifest", "the index has no offset", where=place)
        return check_part(part, label_bytes(sample.label), sample, self.url)
