"""The memory that the pages of a Parquet file take once they are read, from their headers.

pyarrow allocates the length that the header of a page gives, and repeats a value of a dictionary
for each row that refers to it. So a file of 20 kB may take any memory. The metadata at the end of
the file need not agree with the pages.

Headers are in Thrift's compact protocol:
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from larder.bounds import PARQUET_EXPANSION, PARQUET_LEAST_BYTES, BoundError

_HEADER_BYTES = 64 << 10
"""More than a header with the four longest statistics, of 4 KiB each, has."""

_FOOTER_BYTES = 1 << 20
_MOST_DEPTH = 4
_INTEGERS, _STRUCT = (4, 5, 6), 12
_FIXED_BYTES = {3: 1, 7: 8}
_BINARY = 8
_DICTIONARY_PAGE = 2
_OF_PAGE = {0: 5, 2: 7, 3: 8}
"""By type of page, the field of its header that describes it."""

_ENCODING = {0: 2, 2: 2, 3: 4}
_PLAIN = {0, 3, 4, 5, 6, 9}
"""Encodings whose values take no more than the page, or a few bytes each."""

_OF_DICTIONARY = {2, 8}
_LENGTH = struct.Struct("<I")


def check_footer(file: BinaryIO) -> None:
    """Refuse metadata that is longer than a megabyte and an eighth of the file."""
    size_bytes = file.seek(0, 2)
    file.seek(max(0, size_bytes - 8))
    footer_bytes = int.from_bytes(file.read(4), "little")
    most_bytes = _FOOTER_BYTES + size_bytes // 8
    if footer_bytes > most_bytes:
        message = f"{footer_bytes:,} of its {size_bytes:,} bytes are metadata"
        raise BoundError(f"{message}, at most {most_bytes:,} may be")


def check_pages(file: BinaryIO, metadata: Any, groups: Iterable[int]) -> None:
    """Refuse row groups whose values take more memory than a file of this length may have."""
    size_bytes = file.seek(0, 2)
    most_bytes = PARQUET_LEAST_BYTES + PARQUET_EXPANSION * size_bytes
    taken_bytes = 0
    for group in groups:
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            for page_bytes in _decoded(file, chunk, most_bytes):
                taken_bytes += page_bytes
                if taken_bytes > most_bytes:
                    message = f"the values in its {size_bytes:,} bytes take {taken_bytes:,} or more"
                    raise BoundError(f"{message}, at most {most_bytes:,} may be")


class _Page(NamedTuple):
    """A page: where its content is, and the content's length and number of values."""

    kind: int
    encoding: int
    values: int
    bytes: int
    start: int
    stored_bytes: int


def _decoded(file: BinaryIO, chunk: Any, most_bytes: int) -> Iterator[int]:
    """Yield the memory of each page of a column chunk, before the page is unpacked here."""
    longest = 0
    for page in _pages(file, chunk):
        yield page.bytes
        if page.kind == _DICTIONARY_PAGE:
            if chunk.physical_type == "BYTE_ARRAY":
                longest = _longest(_content(file, page, chunk.compression))
        elif page.encoding in _OF_DICTIONARY:
            yield page.values * (1 + longest)
        elif page.encoding in _PLAIN:
            yield page.values
        else:
            raise ValueError(f"a page has the encoding {page.encoding}")


def _pages(file: BinaryIO, chunk: Any) -> Iterator[_Page]:
    """The pages of a column chunk, as pyarrow finds them."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    end = start + chunk.total_compressed_size
    left = chunk.num_values
    while start < end and left > 0:
        file.seek(start)
        try:
            header, length = _fields(file.read(min(_HEADER_BYTES, end - start)), 0, 0)
            kind, size_bytes, stored_bytes = header[1], header[2], header[3]
            about = header[_OF_PAGE[kind]]
            page = _Page(
                kind, about[_ENCODING[kind]], about[1], size_bytes, start + length, stored_bytes
            )
        except (LookupError, TypeError):
            raise ValueError("the header of a page cannot be read") from None
        if min(page.values, page.bytes, page.stored_bytes) < 0:
            raise ValueError("the header of a page has a negative number")
        yield page
        start = page.start + page.stored_bytes
        left -= 0 if kind == _DICTIONARY_PAGE else page.values


def _content(file: BinaryIO, page: _Page, compression: str) -> bytes:
    file.seek(page.start)
    data = file.read(page.stored_bytes)
    if compression == "UNCOMPRESSED":
        return data
    unpacked: bytes = pa.Codec(compression.lower()).decompress(data, page.bytes, asbytes=True)
    return unpacked


def _longest(data: bytes) -> int:
    """The length of the longest value of a dictionary, in which a length precedes each value."""
    at = longest = length = 0
    try:
        while at < len(data):
            (length,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size + length
            if length > longest:
                longest = length
            elif at == 2 * (_LENGTH.size + length) and _are_alike(data, length):
                return length
    except struct.error:
        raise ValueError("a dictionary ends within a value") from None
    return longest


def _are_alike(data: bytes, length: int) -> bool:
    """Whether all values have this length, as digests do, which is found much faster."""
    count, rest = divmod(len(data), _LENGTH.size + length)
    items = np.dtype([("length", "<u4"), ("value", f"V{length}")])
    return not rest and bool(np.all(np.frombuffer(data, items, count)["length"] == length))


def _fields(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """The numbers and structs of a struct by their field, and where the struct ends."""
    if depth > _MOST_DEPTH:
        raise LookupError
    fields: dict[int, Any] = {}
    field = 0
    while head := data[at]:
        kind = head & 15
        if head >> 4:
            field, at = field + (head >> 4), at + 1
        else:
            field, at = _integer(data, at + 1)
        if kind in _INTEGERS:
            fields[field], at = _integer(data, at)
        elif kind == _STRUCT:
            fields[field], at = _fields(data, at, depth + 1)
        elif kind == _BINARY:
            length, at = _varint(data, at)
            at += length
        elif kind > 2:  # of 1 and 2, which are true and false, nothing follows
            at += _FIXED_BYTES[kind]
    return fields, at + 1


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        shift, at = shift + 7, at + 1
        if byte < 128:
            return number, at


def _integer(data: bytes, at: int) -> tuple[int, int]:
    number, at = _varint(data, at)
    return (number >> 1) ^ -(number & 1), at
