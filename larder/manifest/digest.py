"""Digests of values and of rows, the same on every machine.

`RowDigest` hashes the fields of a row, one after the other, followed by a ``;``:

======  =====================================================================
text    length of its UTF-8 in decimal digits, ``:``, its UTF-8
bytes   ``b``, length in decimal digits, ``:``, the bytes
number  ``i``, decimal digits, with ``-`` before them if it is negative, ``,``
null    ``~``
list    ``[``, its items, ``]``
struct  ``(``, its fields, ``)``
======  =====================================================================

When the bytes are read from the front, it is always known what comes next and how long it is, so
two different lists of rows never give the same bytes.

This module does not import pyarrow, because reading a version needs it too.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def canonical_json(value: Any) -> bytes:
    """JSON with sorted keys, no white space, UTF-8, no NaN: a unique form of every value."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def sha256_hex(data: bytes | bytearray | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


class RowDigest:
    """The sha256 of rows in order, regardless of how they are grouped into calls."""

    def __init__(self) -> None:
        self._hasher = hashlib.sha256()

    def update(self, *fields: Any) -> None:
        """Add one row: strings, whole numbers, bytes, None, lists of these, tuples for structs."""
        self._hasher.update(b"".join([encode_field(field) for field in fields]) + b";")

    def update_batch(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch; the same as `update` for each row, but column by column."""
        from larder.manifest.encode import encode_rows  # imports pyarrow

        for data in encode_rows(batch):
            self._hasher.update(data)

    def hexdigest(self) -> str:
        return self._hasher.hexdigest()


def encode_field(value: Any) -> bytes:
    """The bytes of one field of a row, according to the table above."""
    if isinstance(value, str):
        data = value.encode()
        return b"%d:%b" % (len(data), data)
    if value is None:
        return b"~"
    if isinstance(value, int) and not isinstance(value, bool):
        return b"i%d," % value
    if isinstance(value, bytes):
        return b"b%d:%b" % (len(value), value)
    if isinstance(value, list):
        return b"[%b]" % b"".join(map(encode_field, value))
    if isinstance(value, tuple):
        return b"(%b)" % b"".join(map(encode_field, value))
    raise TypeError(f"a row cannot contain {type(value).__name__}")
