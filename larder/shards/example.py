"""The bytes of ``tf.train.Example``: those of the deterministic serialization of C++'s protobuf.

An example is a map from names to features, each a list of bytes, of int64 or of float32
(``tensorflow/core/example/example.proto`` and ``feature.proto``). Here every list of bytes has one
value, and the entries of the map are sorted by the bytes of their names. So all but the contents of
the values is known before these are read: they can be written in pieces, and read where they are.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from larder.shards.sizes import Sizes

_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = b"\x0a", b"\x12", b"\x1a"
"""Fields 1 to 3 of ``Feature``."""

_FIRST = b"\x0a"
"""Field 1, with a length: the features of an example, an entry, its name, the values of a list."""

_VALUE = b"\x12"
"""Field 2, with a length: the feature of an entry."""

_VARINT_LIMITS = 1 << np.arange(7, 63, 7, dtype=np.int64)
"""From these numbers on, a varint needs another byte."""

_ONE_BYTE = tuple(bytes([value]) for value in range(128))


def varint(value: int) -> bytes:
    """A base-128 number; a negative one has ten bytes, as its two's complement has 64 bits."""
    if 0 <= value < 128:
        return _ONE_BYTE[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    found = bytearray()
    while value >= 128:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


@lru_cache(4096)
def bytes_head(name: str, size_bytes: int) -> bytes:
    """All of an entry before its only value: it is the last ``size_bytes`` bytes of the entry."""
    values = _FIRST + varint(size_bytes)
    return _entry_head(name, _BYTES_LIST, values, size_bytes)


@lru_cache(4096)
def _small_int64_entry(name: str, value: int) -> bytes:
    return _numbers(name, _INT64_LIST, varint(value))


def int64_entry(name: str, values: Sequence[int]) -> bytes:
    """An entry with a list of numbers, which are in the range of int64."""
    if len(values) == 1:
        return _small_int64_entry(name, values[0])
    return _numbers(name, _INT64_LIST, b"".join(map(varint, values)))


def float_entry(name: str, values: Sequence[float]) -> bytes:
    """An entry with a list of numbers, rounded to float32."""
    return _numbers(name, _FLOAT_LIST, struct.pack(f"<{len(values)}f", *values))


@lru_cache(4096)
def example_head(entries_bytes: int) -> bytes:
    """The beginning of an example, before entries with this total length."""
    return _FIRST + varint(entries_bytes)


def _numbers(name: str, kind: bytes, packed: bytes) -> bytes:
    if not packed:  # a list without values has no field
        return _entry_head(name, kind, b"", 0)
    return _entry_head(name, kind, _FIRST + varint(len(packed)), len(packed)) + packed


def _entry_head(name: str, kind: bytes, values: bytes, size_bytes: int) -> bytes:
    """An entry of which the values, after ``values``, have another ``size_bytes``."""
    listed = len(values) + size_bytes
    feature = kind + varint(listed) + values
    feature_bytes = len(feature) + size_bytes
    raw = name.encode()
    fields = _FIRST + varint(len(raw)) + raw + _VALUE + varint(feature_bytes) + feature
    return _FIRST + varint(len(fields) + size_bytes) + fields


def example_sizes(entries_bytes: Sizes) -> Sizes:
    """Length of examples with entries of these total lengths."""
    return _with_length(entries_bytes)


def bytes_sizes(name_bytes: Sizes | int, sizes: Sizes) -> Sizes:
    """Length of entries with one value, given the lengths of their names and values."""
    return _entry_sizes(name_bytes, _with_length(sizes))


def _entry_sizes(name_bytes: Sizes | int, list_bytes: Sizes) -> Sizes:
    return _with_length(_with_length(name_bytes) + _with_length(_with_length(list_bytes)))


def _with_length(sizes: Sizes | int) -> Sizes:
    """Length of fields with these contents: a tag, the length of the content, and the content."""
    found: Sizes = 1 + _varint_sizes(sizes) + sizes
    return found


def _varint_sizes(values: Sizes | int) -> Sizes:
    """Length of `varint` of many numbers."""
    more: Sizes = np.searchsorted(_VARINT_LIMITS, values, side="right")
    return np.where(values < 0, 10, 1 + more)
