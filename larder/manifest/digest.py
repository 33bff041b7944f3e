"""Digests of values and of rows, the same on every machine.

The bytes of a row that `RowDigest` hashes are its fields, one after the other, and a ``;``:

======  =====================================================================
text    length of its UTF-8 in decimal digits, ``:``, its UTF-8
bytes   ``b``, length in decimal digits, ``:``, the bytes
number  ``i``, decimal digits, with ``-`` before them if it is negative, ``,``
null    ``~``
list    ``[``, its items, ``]``
struct  ``(``, its fields, ``)``
======  =====================================================================

Whoever reads from the front knows what comes next and how long it is, so no two different lists
of rows give the same bytes.

This module does not import pyarrow: those who read a version need it too.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RowDigest", "canonical_json", "encode_field", "sha256_hex"]


def canonical_json(value: Any) -> bytes:
    """JSON with sorted keys, no white space, UTF-8, no NaN: one text for one value.

    Args:
        value: Mappings with text keys, lists, tuples, text, numbers, booleans and None.
    """
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def sha256_hex(data: bytes | bytearray | memoryview) -> str:
    """The sha256 of ``data``, as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


class RowDigest:
    """The sha256 of rows in their order; how they were grouped into calls does not show."""

    def __init__(self) -> None:
        self._hasher = hashlib.sha256()

    def update(self, *fields: Any) -> None:
        """Add one row: text, whole numbers, bytes, None, lists of these, tuples for structs."""
        self._hasher.update(b"".join([encode_field(field) for field in fields]) + b";")

    def update_batch(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch, as `update` would one by one, but column by column."""
        from larder.manifest.encode import encode_rows  # imports pyarrow

        for data in encode_rows(batch):
            self._hasher.update(data)

    def hexdigest(self) -> str:
        """The digest of the rows so far, as 64 hex digits."""
        return self._hasher.hexdigest()


def encode_field(value: Any) -> bytes:
    """The bytes of one field of a row, as the table above has them.

    Raises:
        TypeError: A value of another type.
    """
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
    raise TypeError(f"a row cannot hold {type(value).__name__}")
