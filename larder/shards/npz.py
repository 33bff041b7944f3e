"""The bytes of numpy's ``.npz``: the same for the same arrays, on any machine.

An uncompressed ZIP archive (APPNOTE.TXT 6.3) of files in numpy's format, version 1.0. Unlike those
of ``numpy.savez``, they have no times, and the header of every array takes 128 bytes, whatever its
length: so the size of an archive follows from the lengths of its arrays.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

HEADER_BYTES = 128
"""The header of an array."""

END_BYTES = 22
"""The end of an archive."""

MAX_BYTES = 2**32 - 1
"""The maximum length of an archive: a longer one needs another form of ZIP."""

_MAGIC = b"\x93NUMPY\x01\x00"
_LOCAL = struct.Struct("<4sHHHHHLLLHH")
_CENTRAL = struct.Struct("<4sHHHHHHLLLHHHHHLL")
_END = struct.Struct("<4sHHHHLLH")

_VERSION, _STORED, _MIDNIGHT, _FIRST_DAY, _UTF8 = 20, 0, 0, 33, 0x800


class Array(NamedTuple):
    """A one-dimensional array in an archive.

    Attributes:
        kind: Its type, such as ``|u1`` or ``<i8``.
        length: Number of its items.
        size_bytes: Length of its items.
    """

    name: str
    kind: str
    length: int
    size_bytes: int

    @property
    def file(self) -> bytes:
        return f"{self.name}.npy".encode()

    @property
    def header(self) -> bytes:
        """What precedes the items."""
        text = f"{{'descr': '{self.kind}', 'fortran_order': False, 'shape': ({self.length},), }}"
        rest = HEADER_BYTES - len(_MAGIC) - 2
        return _MAGIC + struct.pack("<H", rest) + text.encode().ljust(rest - 1) + b"\n"

    @property
    def stored_bytes(self) -> int:
        """Length of its file."""
        return HEADER_BYTES + self.size_bytes

    def crc32(self, pieces: Sequence[bytes]) -> int:
        """The checksum of its file, whose items are in these pieces."""
        found = zlib.crc32(self.header)
        for piece in pieces:
            found = zlib.crc32(piece, found)
        return found


def array_bytes(name: str) -> int:
    """What an array takes in an archive besides its items."""
    length = len(f"{name}.npy".encode())
    return _LOCAL.size + _CENTRAL.size + 2 * length + HEADER_BYTES


def entry_header(array: Array, crc32: int) -> bytes:
    """What precedes the items of an array in an archive."""
    head = (b"PK\x03\x04", _VERSION, _flags(array), _STORED, _MIDNIGHT, _FIRST_DAY, crc32)
    sizes = (array.stored_bytes, array.stored_bytes, len(array.file), 0)
    return _LOCAL.pack(*head, *sizes) + array.file + array.header


def directory(arrays: Sequence[tuple[Array, int, int]]) -> bytes:
    """The end of an archive, from arrays, their checksums and where their `entry_header` begins."""
    entries = b"".join(
        _CENTRAL.pack(
            *(b"PK\x01\x02", _VERSION, _VERSION, _flags(array), _STORED, _MIDNIGHT, _FIRST_DAY),
            *(crc32, array.stored_bytes, array.stored_bytes, len(array.file)),
            *(0, 0, 0, 0, 0, offset),
        )
        + array.file
        for array, crc32, offset in arrays
    )
    last, _, offset = arrays[-1]
    start = offset + _LOCAL.size + len(last.file) + last.stored_bytes
    count = len(arrays)
    return entries + _END.pack(b"PK\x05\x06", 0, 0, count, count, len(entries), start, 0)


def _flags(array: Array) -> int:
    return 0 if array.file.isascii() else _UTF8
