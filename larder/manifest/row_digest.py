"""The digest of rows, the same on every machine.

`RowDigest` hashes the fields of a row in order, followed by a ``;``:

======  =====================================================================
text    length of its UTF-8 in decimal digits, ``:``, its UTF-8
number  ``i``, decimal digits, with ``-`` before them if it is negative, ``,``
null    ``~``
list    ``[``, its items, ``]``
struct  ``(``, its fields, ``)``
======  =====================================================================

Two different lists of rows never give the same bytes: read from the front, the bytes always
determine the kind and the length of the next item.
"""

from __future__ import annotations

import hashlib
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SLICE_ROWS = 4_096
"""Rows to encode at once: enough to be fast, few enough for the processor's cache."""


class RowDigest:
    """The sha256 of rows in order; their division into batches does not matter."""

    def __init__(self) -> None:
        self._hasher = hashlib.sha256()

    def update_batch(self, batch: pa.RecordBatch) -> None:
        for start in range(0, batch.num_rows, _SLICE_ROWS):
            columns = batch.slice(start, _SLICE_ROWS).columns
            rows = _concat(*chain.from_iterable(map(_fields, columns)), b";")
            self._hasher.update(_joined(rows, [0, len(rows)])[0].as_buffer())

    def hexdigest(self) -> str:
        return self._hasher.hexdigest()


def _fields(column: pa.Array) -> list[pa.Array | bytes]:
    """Return the pieces of a column's fields, to concatenate only with the whole row."""
    values = _values(column)
    if not column.null_count:
        return values
    return [pc.if_else(column.is_valid(), _concat(*values), pa.scalar(b"~"))]


def _values(column: pa.Array) -> list[pa.Array | bytes]:
    """Return the pieces of the fields that are not null."""
    kind = column.type
    if pa.types.is_string(kind):
        return [_digits(pc.binary_length(column)), b":", column.cast(pa.binary())]
    if pa.types.is_integer(kind):
        return [b"i", _digits(column), b","]
    if pa.types.is_list(kind):
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        items = _concat(*_fields(column.flatten()))
        return [b"[", _joined(items, [0, *np.cumsum(lengths)]), b"]"]
    if pa.types.is_struct(kind):
        return [b"(", *chain.from_iterable(map(_fields, column.flatten())), b")"]
    raise TypeError(f"a row cannot contain {kind}")


def _joined(values: pa.Array, offsets: list[int]) -> pa.Array:
    """Concatenate the values between each pair of adjacent offsets."""
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values), b"")


def _concat(*columns: pa.Array | bytes) -> pa.Array:
    return pc.binary_join_element_wise(*columns, b"")


def _digits(numbers: pa.Array) -> pa.Array:
    return numbers.cast(pa.string()).cast(pa.binary())
