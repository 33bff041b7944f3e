"""The bytes of one record of a cache file, and the digest of many.

Records are in groups: see `larder.cache.group`. The schema is stored under the key ``schema``,
which sorts after all others, so that a file is written from front to back. A record is its fields
in the order of the schema, then a CRC-32C (u32)::

    [presence: u8, 0 or 1]   if the field is optional; nothing follows a 0
    [dimension: u32] ...     one per open dimension of the schema
    elements                 in C order

All numbers are little-endian; nothing is padded or aligned. The CRC-32C of the fields continues
from that of the file's place, xor the record's number from 0 on: so another record never passes for
this one.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import google_crc32c
import numpy as np

from larder.cache.schema import Field, RecordSchema
from larder.errors import DamageError, FatalError

SCHEMA_KEY: Final = b"schema"


@dataclass(frozen=True, slots=True)
class CacheFileFacts:
    """The published facts of a cache file, which are checked when it is read.

    Attributes:
        sha256: Digest of the file; depends on the page size of the machine that built it.
        digest: Digest of the schema and the ordered records; see
            `larder.cache.record.ContentDigest`.
        place: Which file of which cache it is; see `larder.versions.layout.cache_place`.
    """

    bytes: int
    sha256: str
    digest: str
    records: int
    place: str = ""

    def compare(self, size_bytes: int, sha256: str | None, where: str) -> None:
        """Refuse a file that is not the published one; its digest may be left out."""
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
Span = tuple[int, tuple[int, ...]]
Reader = Callable[[Buffer, int, int, int, int], None]
"""Gets a buffer, where in it a record starts and stops, the record's number, and a row."""

_extend: Final = google_crc32c.extend
_CHECKSUM = struct.Struct("<I")
# The CRC-32C of any bytes followed by their own CRC-32C, little-endian; wherever it began.
_RESIDUE: Final = 0x48674BC7


@dataclass(frozen=True, slots=True)
class _Slot:
    """A field, prepared for encoding and decoding.

    ``closed`` and ``bytes`` are its shape and length if no dimension is open; else ``dims`` reads
    the open dimensions.
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
        """The shape, with the open dimensions taken from ``dims``."""
        given = iter(dims)
        return tuple(next(given) if size is None else size for size in self.shape)


class Codec:
    """Turns the values of a file's records into bytes and back. May be used by many threads."""

    def __init__(self, schema: RecordSchema, place: str = "") -> None:
        self.schema = schema
        self._place_crc: int = google_crc32c.value(place.encode())
        self._slots = tuple(_Slot.of(field) for field in schema.fields)
        self._names = frozenset(schema.names)
        self.record_bytes = (
            _CHECKSUM.size + sum(slot.bytes for slot in self._slots) if schema.is_fixed else None
        )
        """Of every record; None if they differ."""

    def encode(self, values: Mapping[str, Value], number: int = 0) -> bytes:
        """The record of these values, by field, as the one with that number.

        Arrays have the field's dtype (in any byte order) and shape; bytes are those of a
        one-dimensional ``uint8`` field; None or no value is that of an optional field.
        ``cache.schema``: a dimension is too large.
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
        """The records of a file from its first on."""
        for number, values in enumerate(records):
            yield self.encode(values, number)
            del values  # they may be large, and the next ones are made now

    def encode_rows(self, blocks: Iterable[Mapping[str, Array]]) -> Iterator[Buffer]:
        """The same, given the values of many records at once, in the rows of arrays; no field is
        optional, and no dimension is open.
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

    def decode(self, record: Buffer) -> dict[str, Array]:
        """The values of a record as new arrays, without the fields that it does not have.

        Does not verify the checksum; see `check`.
        """
        columns: dict[str, list[Array | None]] = {name: [None] for name in self.schema.names}
        self._read(columns, False, record, 0, 0)
        return {name: value for name, (value,) in columns.items() if value is not None}

    def reader(self, columns: Columns, *, check: bool = True) -> Reader:
        """What reads a record into a row of an array or list per field, and compares it with its
        checksum.

        Fields without a column are skipped.
        """
        spans: list[tuple[bytes, int, int, Array, memoryview]] = []
        end = 0
        for slot in self._slots:
            column = columns.get(slot.name)
            if slot.optional or not isinstance(column, np.ndarray) or column.dtype != slot.dtype:
                return lambda value, start, stop, number, row: self._read(
                    columns, check, value[start:stop], number, row
                )
            dims = _open_dims(slot, column.shape[1:])
            rows = _rows(column)
            begin = end + len(dims)
            end = begin + rows.shape[1]
            spans.append((dims, begin, end, rows, rows.reshape(-1).data))
        length = end + _CHECKSUM.size

        def read(value: Buffer, start: int, stop: int, number: int, row: int) -> None:
            """As `_read`, where every record has the fields in the same places."""
            if stop - start != length or stop > len(value):
                raise _damage()
            crc = self._place_crc ^ number
            for dims, begin, end, rows, out in spans:
                if dims and value[start + begin - len(dims) : start + begin] != dims:
                    raise _damage()
                # A slice of a memoryview costs a third of what the row of an array does.
                width = end - begin
                out[row * width : (row + 1) * width] = value[start + begin : start + end]
                if check:  # what was copied, as that is in the cache of the processor
                    crc = _extend(_extend(crc, dims) if dims else crc, rows[row])
            if check and _CHECKSUM.unpack_from(value, stop - _CHECKSUM.size)[0] != crc:
                raise _damage("the checksum does not match")

        return read

    def _read(self, columns: Columns, check: bool, record: Buffer, number: int, row: int) -> None:
        if check:
            self.check(record, number)
        for slot, span in zip(self._slots, self._spans(record), strict=True):
            column = columns.get(slot.name)
            if column is None or span is None:
                continue
            offset, shape = span
            view: Array = np.ndarray(shape, slot.dtype, record, offset)
            if isinstance(column, list):
                column[row] = view.copy()
            elif column.shape[1:] == shape:  # numpy would repeat a shorter value
                column[row] = view
            else:
                raise _damage()

    def check(self, record: Buffer, number: int = 0) -> None:
        """Compare a record with its checksum (``damage.record``), as the one with that number."""
        # The checksum's C code does not accept a memoryview, only an array over one.
        if len(record) < _CHECKSUM.size or (
            _extend(self._place_crc ^ number, np.frombuffer(record, np.uint8)) != _RESIDUE
        ):
            raise _damage("the checksum does not match")

    def _spans(self, record: Buffer) -> Sequence[Span | None]:
        spans: list[Span | None] = []
        offset, end = 0, len(record) - _CHECKSUM.size
        try:
            for slot in self._slots:
                if slot.optional:
                    flag, offset = record[offset], offset + 1
                    if flag > 1:
                        raise _damage(f"a presence byte is {flag}")
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
            raise _damage() from None
        if offset != end:
            raise _damage()
        return spans


def _damage(message: str = "the bytes are not a record of the schema") -> DamageError:
    return DamageError("damage.record", message)


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
    """The bytes of each of its rows."""
    return array.reshape(len(array), math.prod(array.shape[1:])).view(np.uint8)


def _open_dims(slot: _Slot, shape: Sequence[int]) -> bytes:
    """Those of an array's shape that are open, as they are in a record."""
    sizes = [size for size, want in zip(shape, slot.shape, strict=True) if want is None]
    if max(sizes, default=0) >= 1 << 32:
        message = f"field {slot.name!r} cannot have a dimension of {max(sizes)}"
        raise FatalError("cache.schema", message)
    return slot.dims.pack(*sizes) if slot.dims else b""


def _array(slot: _Slot, value: Value) -> Array:
    """The value as an array; the bytes of a part may be in a field that a decoder fills, too."""
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
    """Columns for `Codec.reader`: an array if values can be stacked, else a list of None."""
    return {
        field.name: empty((rows, *field.shape), field.dtype) if field.stackable else [None] * rows
        for field in fields
    }


class ContentDigest:
    """The digest of a cache's content: its schema and its records in order.

    It is the sha256 of `RecordSchema.content`, followed by each record without its checksum, each
    preceded by its length (u64, little-endian). It depends on neither the page size nor LMDB, nor
    on where the file is.
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
    """The same of the records' checksums in place of the records, so that these are hashed once."""

    def add(self, record: Buffer) -> None:
        self._hash.update(memoryview(record)[-_CHECKSUM.size :])
