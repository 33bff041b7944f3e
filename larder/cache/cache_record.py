"""The bytes of one record of a cache file, and the digest of many.

Records are in groups: see `larder.cache.group`. The schema is stored under the key ``schema``,
which sorts after all other keys, so that a file is written from front to back. A record is its
fields in the order of the schema, then a CRC-32C (u32)::

    [presence: u8, 0 or 1]   if the field is optional; nothing follows a 0
    [dimension: u32] ...     one per open dimension of the schema
    elements                 in C order

All numbers are little-endian; nothing is padded or aligned. The CRC-32C of the fields continues
from the CRC-32C of the file's place, xor the record's number from 0 on. So another record never
passes for this record.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final, NamedTuple

import google_crc32c
import numpy as np

from larder.cache.schema import Field, RecordSchema
from larder.errors import DamageError, FatalError

SCHEMA_KEY: Final = b"schema"


class CacheFileFacts(NamedTuple):
    """Published facts of a cache file, which are checked when the file is read.

    ``sha256`` depends on the page size of the machine that built it; ``digest`` is a
    `ContentDigest`. ``place`` is by `larder.versions.layout.cache_place`.
    """

    bytes: int
    sha256: str
    digest: str
    records: int
    place: str = ""

    def compare(self, size_bytes: int, sha256: str | None, where: str) -> None:
        """Refuse a file that differs from the published file; ``sha256`` may be None."""
        if size_bytes != self.bytes:
            message = f"the file has {size_bytes} bytes instead of {self.bytes}"
            raise DamageError("damage.size", message, where=where)
        if sha256 not in (None, self.sha256):
            message = f"the sha256 of the file is {sha256}, not {self.sha256}"
            raise DamageError("damage.digest", message, where=where)


Array = np.ndarray[Any, Any]
Value = Array | np.generic | bytes | bytearray | memoryview | int | None
Column = Array | list[Array | None]
Columns = Mapping[str, Column]
Buffer = bytes | bytearray | memoryview

_extend: Final = google_crc32c.extend
_CHECKSUM = struct.Struct("<I")
# The CRC-32C of any bytes followed by their own CRC-32C, little-endian, for any initial value.
_RESIDUE: Final = 0x48674BC7
_DIFFERS: Final = "the checksum does not match"
_ODD: Final = "the bytes are not a record of the schema"

_GATHERED_BYTES: Final = 4 << 10
"""Longer values are copied one by one."""

_PIECE_BYTES: Final = 64 << 10
"""Larger pieces of memory come from the system, which takes longer than filling them."""


class _Slot(NamedTuple):
    """A field, prepared for encoding and decoding.

    ``closed`` and ``bytes`` are the shape and the length if no dimension is open; else ``dims``
    reads the open dimensions.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]
    closed: tuple[int, ...]
    optional: bool
    dims: struct.Struct | None
    bytes: int

    @classmethod
    def of(cls, field: Field) -> _Slot:
        dtype = np.dtype(field.dtype).newbyteorder("<")
        closed = tuple(size for size in field.shape if size is not None)
        size_bytes = 0 if field.ragged else math.prod(closed) * dtype.itemsize
        opened = len(field.shape) - len(closed)
        dims = struct.Struct(f"<{opened}I") if opened else None
        return cls(field.name, dtype, field.shape, closed, field.optional, dims, size_bytes)

    def fill(self, dims: Iterable[int]) -> tuple[int, ...]:
        """Return the shape, with the open dimensions taken from ``dims``."""
        given = iter(dims)
        return tuple(next(given) if size is None else size for size in self.shape)


class RecordPlaces(NamedTuple):
    """Records in a memory: their numbers, starts and stops.

    The memory is not an array: a tool that shows variables, as in a traceback, would read an array.
    """

    memory: memoryview
    numbers: Array
    starts: Array
    stops: Array

    def records(self) -> Iterator[tuple[int, memoryview]]:
        columns = (column.tolist() for column in (self.numbers, self.starts, self.stops))
        for number, start, stop in zip(*columns, strict=True):
            yield number, self.memory[start:stop]

    def check(self, wrong: Array, message: str) -> None:
        """Refuse the first record for which ``wrong`` is true."""
        if wrong.any():
            raise damage(message, int(self.numbers[wrong.argmax()]))


class _FixedField(NamedTuple):
    """A field that has its elements in the same place of every record, after its ``dims``.

    ``rows`` are the bytes of each row of the column.
    """

    dims: bytes
    begin: int
    end: int
    rows: Array

    def fill(self, rows: Array, memory: memoryview, starts: Array) -> None:
        """Copy the elements of records at ``starts`` in a memory into rows of the column."""
        width, starts = self.end - self.begin, starts + self.begin
        if width <= _GATHERED_BYTES:
            most = _PIECE_BYTES // max(1, width)
            for first in range(0, len(rows), most):
                some = slice(first, first + most)
                self.rows[rows[some]] = gathered(memory, starts[some], width)
            return
        out: Any = self.rows.reshape(-1)
        if width < _PIECE_BYTES:
            out = out.data  # takes a third of the time, but other threads wait during the copy
        for to, start in zip((rows * width).tolist(), starts.tolist(), strict=True):
            out[to : to + width] = memory[start : start + width]


def gathered(memory: memoryview, starts: Array, width: int) -> Array:
    """Copy ``width`` bytes from each start to a row."""
    every: Array = np.ndarray((len(memory) - width + 1, width), np.uint8, memory, 0, (1, 1))
    return every[starts]


class Codec:
    """A codec between the values of a file's records and bytes, for many threads."""

    def __init__(self, schema: RecordSchema, place: str = "") -> None:
        self.schema = schema
        self._place_crc: int = google_crc32c.value(place.encode())
        self._slots = tuple(_Slot.of(field) for field in schema.fields)
        self._names = frozenset(schema.names)
        self.record_bytes = (
            _CHECKSUM.size + sum(slot.bytes for slot in self._slots) if schema.is_fixed else None
        )
        """Length of every record; None if lengths differ."""

    def encode(self, values: Mapping[str, Value], number: int = 0) -> bytes:
        """Encode values, by field, as the record with this number.

        Bytes fill a one-dimensional ``uint8`` field. An optional field may be None or missing.
        ``cache.schema``: a dimension is too large, or a value does not fit its field.
        """
        assert values.keys() <= self._names, "all fields are in the schema"
        pieces: list[Any] = []
        for slot in self._slots:
            _encode(slot, values.get(slot.name), pieces)
        crc = self._place_crc ^ number
        for piece in pieces:
            crc = _extend(crc, piece)
        pieces.append(_CHECKSUM.pack(crc))
        return b"".join(pieces)

    def encode_each(self, records: Iterable[Mapping[str, Value]]) -> Iterator[Buffer]:
        return map(self.encode, records, count())  # enumerate would hold the values

    def encode_rows(self, blocks: Iterable[Mapping[str, Array]]) -> Iterator[Buffer]:
        """Like `encode_each`, for blocks of many records, in the rows of arrays.

        The schema must have no optional field and no open dimension.
        """
        numbers = count()
        for columns in blocks:
            values = [_rows(np.asarray(columns[slot.name], slot.dtype)) for slot in self._slots]
            checksums = np.empty((len(values[0]), _CHECKSUM.size), np.uint8)
            for record in np.concatenate([*values, checksums], axis=1):
                end = len(record) - _CHECKSUM.size
                crc = _extend(self._place_crc ^ next(numbers), record[:end])
                _CHECKSUM.pack_into(record, end, crc)
                yield record.data

    def decode(self, record: Buffer, number: int = 0) -> dict[str, Array]:
        """Return the values of a record as new arrays; the checksum is not verified."""
        columns: dict[str, list[Array | None]] = {name: [None] for name in self.schema.names}
        self._read(columns, False, record, number, 0)
        return {name: value for name, (value,) in columns.items() if value is not None}

    def read_rows(
        self, columns: Columns, rows: Array, places: RecordPlaces, *, check: bool
    ) -> None:
        """Read records into rows of columns, skipping fields without one."""
        memory, numbers, starts, stops = places
        fields = self._fixed_fields(columns)
        if fields is None:
            for row, (number, record) in zip(rows.tolist(), places.records(), strict=True):
                self._read(columns, check, record, number, row)
            return
        length = fields[-1].end + _CHECKSUM.size
        places.check(stops - starts != length, _ODD)
        for field in fields:
            if field.dims:
                size = len(field.dims)
                dims = gathered(memory, starts + (field.begin - size), size)
                places.check((dims != np.frombuffer(field.dims, np.uint8)).any(axis=1), _ODD)
            field.fill(rows, memory, starts)
        if check:  # check the copies, not the file
            checksums = gathered(memory, starts + fields[-1].end, _CHECKSUM.size)
            wanted = checksums.view(_CHECKSUM.format)[:, 0].tolist()
            for row, number, checksum in zip(rows.tolist(), numbers.tolist(), wanted, strict=True):
                crc = self._place_crc ^ number
                for field in fields:
                    crc = _extend(_extend(crc, field.dims) if field.dims else crc, field.rows[row])
                if crc != checksum:
                    raise damage(_DIFFERS, number)

    def _fixed_fields(self, columns: Columns) -> list[_FixedField] | None:
        """Find the common places of fields; None if the places may differ between records."""
        fields: list[_FixedField] = []
        end = 0
        for slot in self._slots:
            column = columns.get(slot.name)
            if not isinstance(column, np.ndarray) or not column.flags.c_contiguous:
                return None
            if slot.optional or column.dtype != slot.dtype:
                return None
            dims, rows = _open_dims(slot, column.shape[1:]), _rows(column)
            begin = end + len(dims)
            end = begin + rows.shape[1]
            fields.append(_FixedField(dims, begin, end, rows))
        return fields

    def _read(self, columns: Columns, check: bool, record: Buffer, number: int, row: int) -> None:
        if check:
            self.check(record, number)
        for slot, span in zip(self._slots, self._spans(record, number), strict=True):
            column = columns.get(slot.name)
            if column is None or span is None:
                continue
            offset, shape = span
            if isinstance(column, np.ndarray) and column.shape[1:] != shape:
                raise damage(_ODD, number)  # numpy would repeat a shorter value
            view: Array = np.ndarray(shape, slot.dtype, record, offset)
            column[row] = view.copy() if isinstance(column, list) else view
            del view  # a traceback would keep it for longer than the file is open

    def check(self, record: Buffer, number: int = 0) -> None:
        """Raise ``damage.record`` unless the checksum matches the record and its number."""
        # The checksum's C code does not accept a memoryview, only an array over one.
        if len(record) < _CHECKSUM.size or (
            _extend(self._place_crc ^ number, np.frombuffer(record, np.uint8)) != _RESIDUE
        ):
            raise damage(_DIFFERS, number)

    def _spans(self, record: Buffer, number: int) -> Sequence[tuple[int, tuple[int, ...]] | None]:
        """Find the place and the shape of each field; None for a field that the record lacks."""
        spans: list[tuple[int, tuple[int, ...]] | None] = []
        offset, end = 0, len(record) - _CHECKSUM.size
        try:
            for slot in self._slots:
                if slot.optional:
                    flag, offset = record[offset], offset + 1
                    if flag > 1:
                        raise damage(f"a presence byte is {flag}", number)
                    if not flag:
                        spans.append(None)
                        continue
                shape, size_bytes = slot.closed, slot.bytes
                if slot.dims is not None:
                    shape = slot.fill(slot.dims.unpack_from(record, offset))
                    offset += slot.dims.size
                    size_bytes = math.prod(shape) * slot.dtype.itemsize
                spans.append((offset, shape))
                offset += size_bytes
        except (struct.error, IndexError, OverflowError):  # lengths that damage made huge
            raise damage(_ODD, number) from None
        if offset != end:
            raise damage(_ODD, number)
        return spans


def damage(message: str, number: int) -> DamageError:
    return DamageError("damage.record", message, where=f"record {number}")


def _encode(slot: _Slot, value: Value, pieces: list[Any]) -> None:
    if value is None:
        assert slot.optional, f"the record has no {slot.name!r}"
        pieces.append(b"\0")
        return
    array = _array(slot, value)
    if slot.optional:
        pieces.append(b"\1")
    if slot.dims is not None:
        pieces.append(_open_dims(slot, array.shape))
    pieces.append(np.ascontiguousarray(array, slot.dtype).reshape(-1).view(np.uint8))


def _rows(array: Array) -> Array:
    """Return the bytes of each row of an array."""
    return array.reshape(len(array), math.prod(array.shape[1:])).view(np.uint8)


def _open_dims(slot: _Slot, shape: Sequence[int]) -> bytes:
    """Encode the open dimensions of an array's shape."""
    sizes = [size for size, want in zip(shape, slot.shape, strict=True) if want is None]
    if max(sizes, default=0) >= 1 << 32:
        message = f"field {slot.name!r} cannot have a dimension of {max(sizes)}"
        raise FatalError("cache.schema", message)
    return slot.dims.pack(*sizes) if slot.dims else b""


def _array(slot: _Slot, value: Value) -> Array:
    """Return the value as an array; raise ``cache.schema`` if its type is not the field's."""
    if isinstance(value, bytes | bytearray | memoryview):
        array = np.frombuffer(value, np.uint8)
    else:
        array = np.asarray(value, slot.dtype if isinstance(value, int) else None)
    if array.dtype.newbyteorder("<") != slot.dtype or array.ndim != len(slot.shape):
        message = f"field {slot.name!r} takes {slot.dtype.name}[{len(slot.shape)}], not"
        raise FatalError("cache.schema", f"{message} {array.dtype}[{array.ndim}]")
    return array


def empty_columns(
    fields: Iterable[Field], rows: int, empty: Callable[..., Array] = np.empty
) -> dict[str, Column]:
    """Make columns for `Codec.read_rows`: an array if values can be stacked, else a list."""
    return {
        field.name: empty((rows, *field.shape), field.dtype) if field.stackable else [None] * rows
        for field in fields
    }


class ContentDigest:
    """The digest of a cache's content: its schema and its records in order.

    The digest is the sha256 of `RecordSchema.content` and of each record without its checksum, each
    preceded by its length (u64, little-endian). The digest does not depend on the page size, on
    LMDB, or on the place of the file.
    """

    def __init__(self, schema: RecordSchema) -> None:
        self._hash = hashlib.sha256()
        self._add(schema.content())

    def add(self, record: Buffer) -> None:
        self._add(memoryview(record)[: -_CHECKSUM.size])

    def _add(self, item: Buffer) -> None:
        self._hash.update(len(item).to_bytes(8, "little"))
        self._hash.update(item)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


class ChecksumDigest(ContentDigest):
    """A content digest of checksums instead of records, so that records are hashed only once."""

    def add(self, record: Buffer) -> None:
        self._hash.update(memoryview(record)[-_CHECKSUM.size :])
