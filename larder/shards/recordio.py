"""The framing of RecordIO files, and the header of their image records, as Apache MXNet reads them.

A record is a magic number, a word with its length and a flag, the data, and padding to four bytes.
Data that contains the magic number at a multiple of four bytes is cut there: the number is left
out, and the pieces are parts of one record, whose flags say first, middle and last. So whoever
looks for the magic number finds the beginning of a record or of a part of one. Format:
``include/dmlc/recordio.h`` and ``src/recordio.cc`` of dmlc-core; the header is ``IRHeader`` of
``python/mxnet/recordio.py``. All numbers are little-endian.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Iterator

MAGIC = struct.pack("<I", 0xCED7_230A)

HEAD_BYTES = 8
"""What precedes each part of a record."""

MAX_BYTES = (1 << 29) - 1
"""Maximum length of the data of a record: the word has 29 bits for it."""

IMAGE_HEADER = struct.Struct("<IfQQ")
"""Flag (0: one label), label as float32, number of the record, and another number, which is 0."""

NO_LABEL = -1.0
"""The label of a sample without one."""

_WINDOW_BYTES = 1 << 20

_WORD = struct.Struct("<I")
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)


def cuts(data: bytes | mmap.mmap) -> Iterator[int]:
    """Where data is cut: the offsets of the magic number that are multiples of four."""
    for first in range(0, len(data), _WINDOW_BYTES):
        window = data[first : first + _WINDOW_BYTES + len(MAGIC) - 1]  # bytes are searched faster
        at = window.find(MAGIC)
        while at >= 0:
            if at % 4 == 0:
                yield first + at
            at = window.find(MAGIC, at + 1)


def parts_of(size_bytes: int, cut_at: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Where the parts of a record begin and end in its data, given where it is cut."""
    start = 0
    for at in cut_at:
        yield start, at
        start = at + len(MAGIC)
    yield start, size_bytes


def part_head(start: int, stop: int, size_bytes: int) -> bytes:
    """What precedes a part of a record, given where it begins and ends in the record's data."""
    flag = _flag(first=start == 0, last=stop == size_bytes)
    return MAGIC + _WORD.pack(flag << 29 | stop - start)


def record_data(record: bytes) -> Iterator[bytes | memoryview]:
    """The data of a record in pieces, without a copy.

    Raises:
        ValueError: The bytes are not exactly one record.
    """
    view, at = memoryview(record), 0
    while at < len(view) or not at:
        if view[at : at + 4] != MAGIC or len(view) < at + HEAD_BYTES:
            raise ValueError("no magic number where a part begins")
        (word,) = _WORD.unpack_from(view, at + 4)
        first, start, size = at == 0, at + HEAD_BYTES, word & MAX_BYTES
        stop = start + size
        at = stop + -size % 4
        if at > len(view):
            raise ValueError("it ends too early")
        if word >> 29 != _flag(first=first, last=at == len(view)):
            raise ValueError("its parts are not those of one record")
        if any(view[stop:at]):
            raise ValueError("its padding is not zeros")
        if not first:
            yield MAGIC
        yield view[start:stop]


def _flag(*, first: bool, last: bool) -> int:
    if first:
        return _WHOLE if last else _FIRST
    return _LAST if last else _MIDDLE
