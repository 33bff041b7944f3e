"""The memory that the pages of a Parquet file take once they are read, from their headers.

pyarrow allocates the length that the header of a page gives, and repeats a value of a dictionary
for each row that refers to it. So a file of 20 kB may take any memory. The metadata at the end of
the file need not agree with the pages.

Headers are in Thrift's compact protocol:
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from larder.bounds import PARQUET_EXPANSION, PARQUET_LEAST_BYTES, BoundError

_HEADER_BYTES = 64 << 10
"""More than a header with the four longest statistics, of 4 KiB each, has."""

_FOOTER_BYTES = 1 << 20
_MOST_DEPTH = 4
_INTEGERS, _BINARY, _STRUCT = (4, 5, 6), 8, 12
_DICTIONARY = 2
_DESCRIBED = {0: (5, 2), 2: (7, 2), 3: (8, 4)}
"""By type of page, the field of its header that describes it, and in there that of its encoding."""

_PLAIN, _REFERRING = {0, 3, 4, 5, 6, 9}, {2, 8}
"""Encodings whose values take the page and a few bytes each, and encodings of a dictionary."""


def check_footer(file: BinaryIO) -> None:
    """Refuse metadata that is longer than a megabyte and an eighth of the file."""
    size_bytes = file.seek(0, 2)
    file.seek(max(0, size_bytes - 8))
    footer_bytes, most_bytes = int.from_bytes(file.read(4), "little"), size_bytes // 8
    if footer_bytes > _FOOTER_BYTES + most_bytes:
        message = f"{footer_bytes:,} of its {size_bytes:,} bytes are metadata"
        raise BoundError(f"{message}, at most {_FOOTER_BYTES + most_bytes:,} may be")


def check_metadata(metadata: Any) -> None:
    """Refuse columns of texts that unpack, by the metadata, to more than any text does."""
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            stored_bytes, size_bytes = chunk.total_compressed_size, chunk.total_uncompressed_size
            most_bytes = PARQUET_LEAST_BYTES + PARQUET_EXPANSION * stored_bytes
            if chunk.physical_type == "BYTE_ARRAY" and size_bytes > most_bytes:
                message = f"{stored_bytes:,} bytes of column {chunk.path_in_schema}"
                message = f"{message} unpack to {size_bytes:,}, as no text does"
                raise BoundError(f"{message}: write it with smaller row groups, or a dictionary")


def check_pages(file: BinaryIO, metadata: Any, groups: Iterable[int]) -> None:
    """Refuse row groups whose values take more memory than a file of this length may have."""
    size_bytes = file.seek(0, 2)
    most_bytes = PARQUET_LEAST_BYTES + PARQUET_EXPANSION * size_bytes
    taken_bytes = 0
    for group in groups:
        for column in range(metadata.num_columns):
            for page_bytes in _decoded(file, metadata.row_group(group).column(column)):
                taken_bytes += page_bytes
                if taken_bytes > most_bytes:
                    message = f"the values in its {size_bytes:,} bytes take {taken_bytes:,} or more"
                    raise BoundError(f"{message}, at most {most_bytes:,} may be")


def _decoded(file: BinaryIO, chunk: Any) -> Iterator[int]:
    """Yield the memory that the pages of a column chunk take, before a dictionary is unpacked."""
    start, left, longest = chunk.data_page_offset, chunk.num_values, 0
    end = start + chunk.total_compressed_size
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:  # as pyarrow does
        start, end = chunk.dictionary_page_offset, end - start + chunk.dictionary_page_offset
    while start < end and left > 0:
        file.seek(start)
        try:
            header, length = _fields(file.read(min(_HEADER_BYTES, end - start)))
            kind, size_bytes, stored_bytes = header[1], header[2], header[3]
            described, encoded = _DESCRIBED[kind]
            values, encoding = header[described][1], header[described][encoded]
            if min(values, size_bytes, stored_bytes) < 0 or encoding not in _PLAIN | _REFERRING:
                raise LookupError
        except (LookupError, TypeError):
            raise ValueError("the header of a page is not one of a manifest") from None
        yield size_bytes
        if kind != _DICTIONARY:
            left -= values
            yield values * (1 + longest * (encoding in _REFERRING))
        elif chunk.physical_type == "BYTE_ARRAY":
            file.seek(start + length)
            data = file.read(stored_bytes)
            if chunk.compression != "UNCOMPRESSED":
                data = pa.Codec(chunk.compression.lower()).decompress(data, size_bytes, True)
            longest = _longest(data)
        start += length + stored_bytes


def _longest(data: bytes) -> int:
    """The length of the longest value of a dictionary, in which a length precedes each value."""
    at = longest = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        if at == 0 and length < len(data):  # digests have one length, which is found much faster
            items = np.dtype([("length", "<u4"), ("value", f"V{length}")])
            alike = np.frombuffer(data, items, len(data) // items.itemsize)["length"] == length
            if len(data) % items.itemsize == 0 and alike.all():
                return length
        longest, at = max(longest, length), at + 4 + length
    return longest


def _fields(data: bytes, at: int = 0, depth: int = 0) -> tuple[dict[int, Any], int]:
    """The numbers and structs of a struct by their field, and where the struct ends."""
    fields: dict[int, Any] = {}
    field = 0
    while head := data[at]:
        kind, field, at = head & 15, field + (head >> 4), at + 1
        if kind == _STRUCT and depth < _MOST_DEPTH:
            fields[field], at = _fields(data, at, depth + 1)
        elif kind in _INTEGERS:
            number, at = _varint(data, at)
            fields[field] = (number >> 1) ^ -(number & 1)
        elif kind == _BINARY:
            length, at = _varint(data, at)
            at += length
        elif kind > 2 or head < 16:  # nothing follows 1 and 2, which are true and false
            raise LookupError
    return fields, at + 1


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while data[at] >= 128 and shift < 64:
        number |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
    return number | data[at] << shift, at + 1
