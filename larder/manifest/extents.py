"""Derived objects: byte ranges that are listed as objects, and their etags.

A member of an archive, a line of a text file or an entry of a table is listed like an object. The
key begins with the key of the container and a slash. The etag locates the bytes.

- ``@OFFSET+LENGTH/CHARACTERS:ETAG``: ``LENGTH`` bytes from ``OFFSET`` of an object of the source,
  while the object has the etag ``ETAG``. The first ``CHARACTERS`` characters (Unicode code points)
  of the key are the key of the object of the source.
- ``@OFFSET+LENGTH=NAME``: bytes of Larder's own container ``NAME``, which is below the dataset's
  root and never changes.

`larder.store.derived` reads the ranges. Readers import this module without pyarrow.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

_EXTENT = re.compile(r"@(\d{1,19})\+(\d{1,19})(?:/(\d{1,9}):(.*)|=([^/]+))", re.DOTALL | re.ASCII)

_OWN = r"^@[0-9]{1,19}\+[0-9]{1,19}="
_DERIVED = r"^@[0-9]{1,19}\+[0-9]{1,19}(?:=|/[0-9]{1,9}:)"


class Extent(NamedTuple):
    """The place of a derived object's bytes.

    Attributes:
        key_chars: Number of characters of the container's key, which begins the object's key; 0 for
            Larder's own container.
        etag: The container's etag; empty if there is no condition.
        name: Name of Larder's own container; empty if the container is an object of the source.
    """

    offset: int
    length: int
    key_chars: int
    etag: str
    name: str

    def container(self, key: str) -> str:
        """Return the container's key in the source, or the name of Larder's own container."""
        return self.name or key[: self.key_chars]


def parse_extent(etag: str | None) -> Extent | None:
    """Parse the etag of a derived object; None for other etags."""
    if etag is None or not etag.startswith("@"):
        return None
    match = _EXTENT.fullmatch(etag)
    if match is None:
        return None
    offset, length, chars, of_object, name = match.groups()
    return Extent(int(offset), int(length), int(chars or 0), of_object or "", name or "")


def in_object(key: str, etag: str) -> str:
    """Return the end of the etags of ranges in an object of the source."""
    return f"/{len(key)}:{etag}"


def in_own(name: str) -> str:
    """Return the end of the etags of ranges in Larder's own container; its name has no slash."""
    assert "/" not in name, "it is one segment of a key"
    return f"={name}"


def is_derived(etags: pa.Array) -> pa.Array:
    """Flag the etags of derived objects."""
    import pyarrow.compute as pc

    return pc.match_substring_regex(etags, _DERIVED)


def is_own(etags: pa.Array) -> pa.Array:
    """Flag the etags of derived objects in Larder's own containers."""
    import pyarrow.compute as pc

    return pc.match_substring_regex(etags, _OWN)


def extent_etags(offsets: pa.Array, lengths: pa.Array, end: str) -> pa.Array:
    """Return the etags of derived objects; `in_object` or `in_own` makes ``end``."""
    import pyarrow.compute as pc

    offset, length = (column.cast("string") for column in (offsets, lengths))
    return pc.binary_join_element_wise("@", offset, "+", length, end, "")
