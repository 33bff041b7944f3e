"""Derived objects: byte ranges that are listed as objects of their own, and the etags that say so.

A member of an archive, a line of a text file or an entry of a table is listed like an object, with
a key that begins with that of its container and a slash. Its etag is all that is needed to read it:

- ``@OFFSET+LENGTH/CHARACTERS:ETAG``: ``LENGTH`` bytes from ``OFFSET`` of an object of the source,
  as long as that has the etag ``ETAG``. Its key is the first ``CHARACTERS`` characters (Unicode
  code points) of the key.
- ``@OFFSET+LENGTH=NAME``: bytes of a container of Larder's own, which has that name below the
  dataset's root and is never changed.

This module makes and parses these etags. `larder.store.derived` reads what they describe.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

_EXTENT = re.compile(r"@(\d{1,19})\+(\d{1,19})(?:/(\d{1,9}):(.*)|=([^/]+))", re.DOTALL | re.ASCII)

_OWN = r"^@[0-9]{1,19}\+[0-9]{1,19}="
_DERIVED = r"^@[0-9]{1,19}\+[0-9]{1,19}(?:=|/[0-9]{1,9}:)"


class Extent(NamedTuple):
    """Where the bytes of a derived object are.

    Attributes:
        key_chars: How many characters of the key are that of the container; 0 in one of Larder's
            own.
        etag: The container's etag; empty if there is no condition.
        name: Name of a container of Larder's own; empty if it is an object of the source.
    """

    offset: int
    length: int
    key_chars: int
    etag: str
    name: str

    def container(self, key: str) -> str:
        """Key of the container in the source, or its name among Larder's own."""
        return self.name or key[: self.key_chars]


def parse_extent(etag: str | None) -> Extent | None:
    """What an etag says; None if it is not that of a derived object."""
    if etag is None or not etag.startswith("@"):
        return None
    match = _EXTENT.fullmatch(etag)
    if match is None:
        return None
    offset, length, chars, of_object, name = match.groups()
    return Extent(int(offset), int(length), int(chars or 0), of_object or "", name or "")


def is_derived(etags: pa.Array) -> pa.Array:
    """Which etags of a column are those of derived objects."""
    return pc.match_substring_regex(etags, _DERIVED)


def is_own(etags: pa.Array) -> pa.Array:
    """Which etags of a column are those of derived objects in containers of Larder's own."""
    return pc.match_substring_regex(etags, _OWN)


def in_object(key: str, etag: str) -> str:
    """The end of the etags of what an object of the source contains."""
    return f"/{len(key)}:{etag}"


def in_own(name: str) -> str:
    """The same for a container of Larder's own, whose name has no slash."""
    assert "/" not in name, "it is one segment of a key"
    return f"={name}"


def extent_etags(offsets: pa.Array, lengths: pa.Array, end: str) -> pa.Array:
    """The etags of derived objects; ``offsets`` and ``lengths`` are int64, ``end`` is from
    `in_object` or `in_own`.
    """
    offset, length = (column.cast(pa.string()) for column in (offsets, lengths))
    return pc.binary_join_element_wise("@", offset, "+", length, end, "")
