"""The framing of RecordIO files, and the header of their image records, as Apache MXNet reads them.

A record is a magic number, a word with its length and a flag, the data, and padding to four bytes.
Data that contains the magic number at a multiple of four bytes is cut there: the number is left
out, and the pieces are parts of one record, whose flags say first, middle and last. So whoever
looks for the magic number finds the beginning of a record or of a part of one. Format:
``include/dmlc/recordio.h`` and ``src/recordio.cc`` of dmlc-core; the header is ``IRHeader`` of
``python/mxnet/recordio.py``. All numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

__all__ = [
    "HEAD_BYTES",
    "IMAGE_HEADER",
    "MAGIC",
    "MAX_BYTES",
    "NO_LABEL",
    "cuts",
    "part_head",
    "parts_of",
    "record_data",
]

MAGIC = struct.pack("<I", 0xCED7_230A)

HEAD_BYTES = 8
"""What precedes each part of a record."""

MAX_BYTES = (1 << 29) - 1
"""Maximum length of the data of a record: the word has 29 bits for it."""

IMAGE_HEADER = struct.Struct("<IfQQ")
"""Flag (0: one label), label as float32, number of the record, and another number, which is 0."""

NO_LABEL = -1.0
"""The label of a sample without one."""

_WORD = struct.Struct("<I")
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)


def cuts(data: bytes | bytearray) -> list[int]:
    """Where data is cut: the offsets of the magic number that are multiples of four."""
    found = []
    at = data.find(MAGIC)
    while at >= 0:
        if at % 4 == 0:
            found.append(at)
        at = data.find(MAGIC, at + 1)
    return found


def parts_of(size_bytes: int, cut_at: list[int]) -> list[tuple[int, int]]:
    """Where the parts of a record begin and end in its data, given where it is cut."""
    starts = [0, *(at + len(MAGIC) for at in cut_at)]
    return list(zip(starts, [*cut_at, size_bytes], strict=True))


def part_head(number: int, count: int, size_bytes: int) -> bytes:
    """What precedes a part of a record.

    Args:
        number: Its number, from 0.
        count: How many parts the record has.
        size_bytes: Its length.
    """
    flag = _WHOLE
    if count > 1:
        flag = _FIRST if number == 0 else _LAST if number == count - 1 else _MIDDLE
    return MAGIC + _WORD.pack(flag << 29 | size_bytes)


def record_data(record: bytes) -> bytes:
    """The data of a record.

    Args:
        record: All its bytes, and no more.

    Raises:
        ValueError: They are not one record.
    """
    pieces = list(_pieces(record))
    flags = [flag for flag, _ in pieces]
    whole = [_WHOLE] if len(pieces) == 1 else [_FIRST, *[_MIDDLE] * (len(pieces) - 2), _LAST]
    if flags != whole:
        raise ValueError("its parts are not those of one record")
    return MAGIC.join(data for _, data in pieces)


def _pieces(record: bytes) -> Iterator[tuple[int, bytes]]:
    """Flag and data of each part."""
    at = 0
    while True:
        if record[at : at + 4] != MAGIC or len(record) < at + HEAD_BYTES:
            raise ValueError("no magic number where a part begins")
        (word,) = _WORD.unpack_from(record, at + 4)
        start, size = at + HEAD_BYTES, word & MAX_BYTES
        at = start + size + -size % 4
        if at > len(record):
            raise ValueError("it ends too early")
        yield word >> 29, record[start : start + size]
        if at == len(record):
            return
