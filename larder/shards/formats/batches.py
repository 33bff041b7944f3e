"""A batch of samples in one object: an ``.npz`` that ``numpy.load`` reads.

Every extension EXT of the segment has two arrays: ``EXT``, uint8, the contents of all samples in
order, and ``EXT.offsets``, int64: sample i has the items from ``offsets[i]`` up to
``offsets[i + 1]``. A part that a sample lacks has no items. ``key`` and ``key.offsets`` hold the
keys in the same way, in UTF-8. ``label``, if the dataset has labels, has an int64 for each sample,
-1 for a sample without a label.

The file is an uncompressed ZIP archive (APPNOTE.TXT 6.3) of files in numpy's format, version 1.0.
Unlike in files of ``numpy.savez``, members have no times, and every array's header takes 128 bytes.
So the bytes depend on the arrays alone, and the size on their lengths alone. A batch is in memory
while it is written, and while samples are read back.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.shape import FormatOptions, Layout
from larder.errors import ConfigError, DamageError
from larder.manifest.digest import canonical_json
from larder.manifest.spool import Spool
from larder.samples.indexed import IndexedPart, IndexedSample, check_part
from larder.shards.formats.format_interface import ShardFormat, ShardWriter, Split
from larder.shards.hashed_output import HashedOutput
from larder.shards.model import PlannedSample, ShardPlan, label_bytes
from larder.shards.reading.fetch import Body
from larder.shards.sizes import Sizes, refuse_names, sum_parts, survey_parts
from larder.store import object_url
from larder.store.base import Closing, Readable

_KEY, _LABEL, _OFFSETS = "key", "label", ".offsets"
_NUMBER_BYTES = 8
_NO_LABEL = -1


class BatchesFormat(ShardFormat):
    """``shards.format: batches``; the layout lists the arrays."""

    suffix = ".npz"
    surveys = True

    def __init__(self, options: FormatOptions) -> None:
        self._layout = options.layout or Layout({}, labelled=False)
        self.split_indexes = (BatchesIndex(),)
        # Headers, each column's first offset, and the end of the archive.
        names = _names(self._layout)
        offsets = _NUMBER_BYTES * sum(name.endswith(_OFFSETS) for name in names)
        self.empty_bytes = sum(map(array_bytes, names)) + offsets + END_BYTES

    def survey(self, batches: Iterable[pa.RecordBatch], before: Layout | None) -> Layout:
        layout = survey_parts(batches, before)
        refuse_names(layout, set(_names(replace(layout, parts={}))), "a batch")
        ends = {f"{column}{_OFFSETS}" for column in layout.parts}
        refuse_names(layout, ends, "a batch")
        return layout

    def sample_sizes(self, batch: pa.RecordBatch) -> Sizes:
        parts = batch.column("parts")
        sizes = sum_parts(parts, parts.flatten().field("size_bytes").to_numpy())
        sizes += pc.binary_length(batch.column("key")).to_numpy()
        columns = len(self._layout.parts) + 1 + self._layout.labelled
        return sizes + _NUMBER_BYTES * columns

    def writer(self, outputs: Sequence[HashedOutput], plan: ShardPlan) -> BatchWriter:
        (output,) = outputs
        return BatchWriter(output, self._layout, plan)

    def open(self, store: Readable, key: str) -> BatchReader:
        return BatchReader(store, key)


class BatchesIndex:
    kind = "batches"

    def content(self, split: Split) -> bytes:
        document = {
            "format": "larder-batches-1",
            "dataset": split.dataset,
            "split": split.name,
            "samples": sum(samples for _, samples in split.shards),
            "batches": [{"key": file.path, "samples": samples} for file, samples in split.shards],
        }
        return canonical_json(document) + b"\n"


class BatchWriter(ShardWriter):
    """A writer that holds the batch in memory; a plan too long for a ZIP file is refused."""

    def __init__(self, output: HashedOutput, layout: Layout, plan: ShardPlan) -> None:
        if plan.bytes > MAX_BYTES:
            message = f"a batch has at most {MAX_BYTES:,} bytes, this one has {plan.bytes:,}"
            hint = "lower shards.samples_per_shard, or choose another format"
            raise ConfigError("config.invalid_value", message, where=plan.name, hint=hint)
        super().__init__(output)
        self._layout = layout
        self._samples: list[tuple[PlannedSample, Sequence[Body]]] = []
        self._entries: list[tuple[Array, int, int]] = []

    def append(self, sample: PlannedSample, bodies: Sequence[Body]) -> None:
        self._samples.append((sample, bodies))

    def finish(self) -> Spool:
        contents = [
            {part.ext: body.data for part, body in zip(sample.parts, bodies, strict=True)}
            for sample, bodies in self._samples
        ]
        keys = [sample.key.encode() for sample, _ in self._samples]
        self._put_texts(_KEY, keys)
        if self._layout.labelled:
            labels = [
                _NO_LABEL if sample.label is None else sample.label for sample, _ in self._samples
            ]
            self._put_array(_LABEL, "<i8", len(labels), [_numbers(labels)])
        places = {
            ext: self._put_texts(ext, [parts.get(ext, b"") for parts in contents])
            for ext in self._layout.parts
        }
        self._put(directory(self._entries))
        return self._index(places)

    def _put_texts(self, name: str, values: list[bytes]) -> list[int]:
        """Write contents and their offsets, and return each content's place in the object."""
        ends = list(accumulate(map(len, values), initial=0))
        start = self._put_array(name, "|u1", ends[-1], values)
        self._put_array(f"{name}{_OFFSETS}", "<i8", len(ends), [_numbers(ends)])
        return [start + end for end in ends[:-1]]

    def _put_array(self, name: str, kind: str, length: int, pieces: list[bytes]) -> int:
        """Write an array, and return the place of its items in the object."""
        array = Array(name, kind, length, sum(map(len, pieces)))
        crc32, offset = array.crc32(pieces), self._output.bytes
        self._put(entry_header(array, crc32))
        self._entries.append((array, crc32, offset))
        start = self._output.bytes
        self._output.append(pieces, array.size_bytes)
        return start

    def _index(self, places: dict[str, list[int]]) -> Spool:
        for number, (sample, bodies) in enumerate(self._samples):
            offsets = (places[part.ext][number] for part in sample.parts)
            data, checksums = zip(*bodies, strict=True)
            self._rows.add_parts(sample, (number, 1), offsets, map(len, data), checksums)
        return self._rows.finish()


class BatchReader(Closing):
    def __init__(self, store: Readable, key: str) -> None:
        self.url = object_url(store.url, key)
        self._data = store.get(key)

    def read(
        self, sample: IndexedSample, parts: Sequence[IndexedPart] | None = None
    ) -> dict[str, bytes]:
        contents = {}
        for part in sample.parts if parts is None else parts:
            if part.offset is None:
                data = label_bytes(self._label(sample.offset))
            else:
                data = self._data[part.offset : part.offset + part.length]
                if len(data) < part.length:
                    stop = part.offset + part.length
                    message = f"the batch has {len(self._data):,} bytes, {stop:,} are in the index"
                    raise DamageError("damage.size", message, where=self.url)
            contents[part.ext] = check_part(part, data, sample, self.url)
        return contents

    def close(self) -> None:
        self._data = b""

    def _label(self, row: int) -> int:
        try:
            with zipfile.ZipFile(io.BytesIO(self._data)) as archive:
                info = archive.getinfo(f"{_LABEL}.npy")
                if info.compress_type != zipfile.ZIP_STORED:  # it could grow a thousandfold
                    raise ValueError("an array is compressed")
                data = archive.read(info)
            (label,) = struct.unpack_from("<q", data, HEADER_BYTES + _NUMBER_BYTES * row)
        except (
            *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError, OSError),
            *(ValueError, RuntimeError),  # a flag marks it as encrypted
        ) as error:
            message = f"the batch cannot be read: {str(error) or 'it ends too early'}"
            raise DamageError("damage.record", message, where=self.url) from error
        return int(label)


def _names(layout: Layout) -> list[str]:
    columns = [_KEY, *layout.parts]
    names = [name for column in columns for name in (column, f"{column}{_OFFSETS}")]
    return [*names, *([_LABEL] if layout.labelled else [])]


def _numbers(values: Sequence[int]) -> bytes:
    numbers: npt.NDArray[np.int64] = np.array(values, "<i8")
    return numbers.tobytes()


HEADER_BYTES = 128
"""The header of an array."""

END_BYTES = 22
"""The end of an archive."""

MAX_BYTES = 2**32 - 1
"""The maximum length of an archive: longer archives need another form of ZIP."""

_MAGIC = b"\x93NUMPY\x01\x00"
_LOCAL = struct.Struct("<4sHHHHHLLLHH")
_CENTRAL = struct.Struct("<4sHHHHHHLLLHHHHHLL")
_END = struct.Struct("<4sHHHHLLH")

_VERSION, _STORED, _MIDNIGHT, _FIRST_DAY, _UTF8 = 20, 0, 0, 33, 0x800


class Array(NamedTuple):
    """A one-dimensional array in an archive."""

    name: str
    kind: str
    length: int
    size_bytes: int

    @property
    def file(self) -> bytes:
        return f"{self.name}.npy".encode()

    @property
    def header(self) -> bytes:
        text = f"{{'descr': '{self.kind}', 'fortran_order': False, 'shape': ({self.length},), }}"
        rest = HEADER_BYTES - len(_MAGIC) - 2
        return _MAGIC + struct.pack("<H", rest) + text.encode().ljust(rest - 1) + b"\n"

    @property
    def stored_bytes(self) -> int:
        return HEADER_BYTES + self.size_bytes

    def crc32(self, pieces: Sequence[bytes]) -> int:
        checksum = zlib.crc32(self.header)
        for piece in pieces:
            checksum = zlib.crc32(piece, checksum)
        return checksum


def array_bytes(name: str) -> int:
    """Return how many bytes an array takes in an archive besides its items."""
    length = len(f"{name}.npy".encode())
    return _LOCAL.size + _CENTRAL.size + 2 * length + HEADER_BYTES


def entry_header(array: Array, crc32: int) -> bytes:
    """Return the headers before the items of an array in an archive."""
    head = (b"PK\x03\x04", _VERSION, _flags(array), _STORED, _MIDNIGHT, _FIRST_DAY, crc32)
    sizes = (array.stored_bytes, array.stored_bytes, len(array.file), 0)
    return _LOCAL.pack(*head, *sizes) + array.file + array.header


def directory(arrays: Sequence[tuple[Array, int, int]]) -> bytes:
    """Return the end of an archive, from arrays, checksums and offsets of each `entry_header`."""
    entries = b"".join(
        _CENTRAL.pack(
            *(b"PK\x01\x02", _VERSION, _VERSION, _flags(array), _STORED, _MIDNIGHT, _FIRST_DAY),
            *(crc32, array.stored_bytes, array.stored_bytes, len(array.file)),
            *(0, 0, 0, 0, 0, offset),
        )
        + array.file
        for array, crc32, offset in arrays
    )
    last, _, offset = arrays[-1]
    start = offset + _LOCAL.size + len(last.file) + last.stored_bytes
    count = len(arrays)
    return entries + _END.pack(b"PK\x05\x06", 0, 0, count, count, len(entries), start, 0)


def _flags(array: Array) -> int:
    return 0 if array.file.isascii() else _UTF8
