"""Derived objects: byte ranges that are listed as objects of their own, and the etags that say so.

A member of an archive, a line of a text file or an entry of a table is listed like an object, with
a key that begins with that of its container and a slash. Its etag is all that is needed to read it:

- ``@OFFSET+LENGTH/CHARACTERS:ETAG``: ``LENGTH`` bytes from ``OFFSET`` of an object of the source,
  as long as that has the etag ``ETAG``. Its key is the first ``CHARACTERS`` characters (Unicode
  code points) of the key.
- ``@OFFSET+LENGTH=NAME``: bytes of a container of Larder's own, which has that name below the
  dataset's root and is never changed.

This module makes and parses these etags, and `larder.manifest.extent_columns` columns of them.
`larder.store.derived` reads what they describe.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_EXTENT = re.compile(r"@(\d{1,19})\+(\d{1,19})(?:/(\d{1,9}):(.*)|=([^/]+))", re.DOTALL | re.ASCII)


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


def in_object(key: str, etag: str) -> str:
    """The end of the etags of what an object of the source contains."""
    return f"/{len(key)}:{etag}"


def in_own(name: str) -> str:
    """The same for a container of Larder's own, whose name has no slash."""
    assert "/" not in name, "it is one segment of a key"
    return f"={name}"
