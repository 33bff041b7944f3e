"""Memory that the pages of a Parquet file take when they are read, computed from their headers.

pyarrow allocates the length in the header of a page, and repeats a dictionary value for each row
that refers to it. So a file of 20 kB may take any memory. The metadata at the end of the file need
not agree with the pages.

Headers are in Thrift's compact protocol:
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from larder.bounds import PARQUET_EXPANSION, PARQUET_LEAST_BYTES, BoundError

_LENGTH = struct.Struct("<I")

_HEADER_BYTES = 64 << 10
"""More than the length of a header with four statistics of the maximum length, 4 KiB each."""

_FOOTER_BYTES = 1 << 20
_MOST_DEPTH = 8
_BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 3, 4, 5, 6, 7, 8, 9, 10, 12
_DICTIONARY = 2
_DESCRIBED = {0: (5, 2), 2: (7, 2), 3: (8, 4)}
"""The field that describes a page, and in it the field of the encoding, by type of page."""

_PLAIN, _REFERRING = {0, 3, 4, 5, 6, 9}, {2, 8}
"""Encodings whose values take the page and a few bytes each, and encodings of a dictionary."""

_BYTE_ARRAY, _UNCOMPRESSED, _ZSTD = 6, 0, 6

_Fields = dict[tuple[int, int], Any]
"""Numbers, structs and lists of structs, by the number and the type of the field."""


def check_footer(file: BinaryIO) -> None:
    """Refuse metadata that is longer than a megabyte and an eighth of the file."""
    size_bytes = file.seek(0, 2)
    file.seek(max(0, size_bytes - 8))
    footer_bytes, most_bytes = int.from_bytes(file.read(4), "little"), size_bytes // 8
    if footer_bytes > _FOOTER_BYTES + most_bytes:
        message = f"{footer_bytes:,} of its {size_bytes:,} bytes are metadata"
        raise BoundError(f"{message}, at most {_FOOTER_BYTES + most_bytes:,} may be")


def check_pages(file: BinaryIO, groups: Iterable[int]) -> None:
    """Refuse row groups whose values take more memory than a file of this length may take.

    The footer is not read by pyarrow, which ends the process if a column has no metadata.
    """
    size_bytes = file.seek(0, 2)
    most_bytes = PARQUET_LEAST_BYTES + PARQUET_EXPANSION * size_bytes
    taken_bytes = 0
    try:
        row_groups = _footer(file)[4, _LIST]
        for chunk in chain.from_iterable(row_groups[group][1, _LIST] for group in groups):
            for page_bytes in _decoded(file, chunk[3, _STRUCT]):
                taken_bytes += page_bytes
                if taken_bytes > most_bytes:
                    message = f"the values in its {size_bytes:,} bytes take {taken_bytes:,} or more"
                    raise BoundError(f"{message}, at most {most_bytes:,} may be")
    except (LookupError, TypeError):
        raise ValueError("its footer, or the header of a page, is not one of a manifest") from None


def _footer(file: BinaryIO) -> _Fields:
    end = file.seek(-8, 2)
    footer_bytes = int.from_bytes(file.read(4), "little")
    file.seek(max(0, end - footer_bytes))
    return _fields(file.read(footer_bytes))[0]


def _decoded(file: BinaryIO, chunk: _Fields) -> Iterator[int]:
    """Yield the memory that the pages of a column chunk take, before a dictionary is unpacked."""
    start, left, longest = chunk[9, _I64], chunk[5, _I64], 0
    end = start + chunk[7, _I64]
    dictionary = chunk.get((11, _I64), 0)
    if 0 < dictionary < start:  # the same rule as in pyarrow
        start, end = dictionary, end - start + dictionary
    while start < end and left > 0:
        file.seek(start)
        header, length = _fields(file.read(min(_HEADER_BYTES, end - start)))
        kind, size_bytes, stored_bytes = (header[number, _I32] for number in (1, 2, 3))
        described, encoded = _DESCRIBED[kind]
        page = header[described, _STRUCT]
        values, encoding = page[1, _I32], page[encoded, _I32]
        if min(values, size_bytes, stored_bytes) < 0 or encoding not in _PLAIN | _REFERRING:
            raise LookupError
        yield size_bytes
        if kind != _DICTIONARY:
            left -= values
            yield values * (1 + longest * (encoding in _REFERRING))
        elif chunk[1, _I32] == _BYTE_ARRAY:
            file.seek(start + length)
            data = file.read(stored_bytes)
            if chunk[4, _I32] == _ZSTD:
                data = pa.Codec("zstd").decompress(data, size_bytes, True)
            elif chunk[4, _I32] != _UNCOMPRESSED:
                raise LookupError
            longest = _longest(data)
        start += length + stored_bytes


def _longest(data: bytes) -> int:
    """Return the length of a dictionary's longest value; a length precedes each value."""
    at = longest = 0
    while at < len(data) - 3:
        (length,) = _LENGTH.unpack_from(data, at)
        if at == 0 and length < len(data):  # digests have one length, which is found much faster
            items = np.dtype([("length", "<u4"), ("value", f"V{length}")])
            alike = np.frombuffer(data, items, len(data) // items.itemsize)["length"] == length
            if len(data) % items.itemsize == 0 and alike.all():
                return int(length)
        # max() and int.from_bytes() would take four times as long.
        longest, at = length if length > longest else longest, at + _LENGTH.size + length
    return longest


def _fields(data: bytes, at: int = 0, depth: int = 0) -> tuple[_Fields, int]:
    """Read a struct, and return its end; LookupError if it is invalid, or repeats a field."""
    fields: _Fields = {}
    number = 0
    while head := data[at]:
        kind, number, at = head & 15, number + (head >> 4), at + 1
        if head < 16 or (number, kind) in fields:
            raise LookupError
        if kind > 2:  # nothing follows 1 and 2, which are true and false
            value, at = _value(kind, data, at, depth)
            if value is not None:
                fields[number, kind] = value
    return fields, at + 1


def _value(kind: int, data: bytes, at: int, depth: int) -> tuple[Any, int]:
    """Read a number, a struct or a list of structs; None in place of other values."""
    if kind == _STRUCT and depth < _MOST_DEPTH:
        return _fields(data, at, depth + 1)
    if kind in (_I16, _I32, _I64):
        number, at = _varint(data, at)
        return (number >> 1) ^ -(number & 1), at
    if kind == _BINARY:
        length, at = _varint(data, at)
        return None, at + length
    if kind in (_BYTE, _DOUBLE):
        return None, at + (1 if kind == _BYTE else 8)
    if kind not in (_LIST, _SET) or depth == _MOST_DEPTH:
        raise LookupError
    count, of, at = data[at] >> 4, data[at] & 15, at + 1
    if count == 15:
        count, at = _varint(data, at)
    if count > len(data) - at:
        raise LookupError
    of = _BYTE if of in (1, 2) else of
    structs = []
    for _ in range(count):
        value, at = _value(of, data, at, depth + 1)
        if of == _STRUCT:
            structs.append(value)
    return structs, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while data[at] >= 128 and shift < 64:
        number |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
    return number | data[at] << shift, at + 1
