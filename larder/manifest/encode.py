"""The bytes of rows for `larder.manifest.digest.RowDigest`, encoded column by column."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SLICE_ROWS = 4_096
"""Rows encoded at once: enough to be fast, few enough for the processor's cache."""


def encode_rows(batch: pa.RecordBatch) -> Iterator[bytes]:
    """The bytes of a batch's rows, in pieces."""
    for start in range(0, batch.num_rows, _SLICE_ROWS):
        rows = batch.slice(start, _SLICE_ROWS)
        encoded = _concat(*map(_encode, rows.columns), b";")
        yield _joined(encoded, [0, len(encoded)])[0].as_py()


def _encode(column: pa.Array) -> pa.Array:
    """One binary value per row; null if the row is null, for the caller to fill."""
    return pc.fill_null(_encode_values(column), b"~")


def _encode_values(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _concat(_digits(pc.binary_length(column)), b":", column.cast(pa.binary()))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        length = _digits(pc.binary_length(column))
        return _concat(b"b", length, b":", column.cast(pa.binary()))
    if pa.types.is_integer(kind):
        return _concat(b"i", _digits(column), b",")
    if pa.types.is_list(kind):
        return _encode_lists(column)
    if pa.types.is_struct(kind):
        fields = _concat(b"(", *map(_encode, column.flatten()), b")")
        return pc.if_else(column.is_valid(), fields, pa.scalar(None, pa.binary()))
    raise TypeError(f"a row cannot contain {kind}")


def _encode_lists(column: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    items = _joined(_encode(column.flatten()), [0, *np.cumsum(lengths)])
    lists = _concat(b"[", items, b"]")
    return pc.if_else(column.is_valid(), lists, pa.scalar(None, pa.binary()))


def _joined(values: pa.Array, offsets: list[int]) -> pa.Array:
    """One value per pair of adjacent offsets: the values between them, concatenated."""
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values), b"")


def _concat(*columns: pa.Array | bytes) -> pa.Array:
    return pc.binary_join_element_wise(*columns, b"")


def _digits(numbers: pa.Array) -> pa.Array:
    return numbers.cast(pa.string()).cast(pa.binary())
