"""Columns of the etags of derived objects; see `larder.manifest.extents`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_OWN = r"^@[0-9]{1,19}\+[0-9]{1,19}="
_DERIVED = r"^@[0-9]{1,19}\+[0-9]{1,19}(?:=|/[0-9]{1,9}:)"


def is_derived(etags: pa.Array) -> pa.Array:
    """Flag the etags of derived objects."""
    return pc.match_substring_regex(etags, _DERIVED)


def is_own(etags: pa.Array) -> pa.Array:
    """Flag the etags of derived objects in Larder's own containers."""
    return pc.match_substring_regex(etags, _OWN)


def extent_etags(offsets: pa.Array, lengths: pa.Array, end: str) -> pa.Array:
    """Return the etags of derived objects.

    ``offsets`` and ``lengths`` are int64; `larder.manifest.extents.in_object` or `in_own` makes
    ``end``.
    """
    offset, length = (column.cast(pa.string()) for column in (offsets, lengths))
    return pc.binary_join_element_wise("@", offset, "+", length, end, "")
