"""Groups: the values of a cache file's LMDB, each of which has several consecutive records.

LMDB stores a value of more than half a page in pages of its own, of which the rest stays empty. So
a group has at least 100,000 bytes: as many records as that takes, one after the other; but one that
has as much itself is a group alone. If the records of a file differ in length, and a group has
several, the places in the value where each begins follow, and where the last one ends (u32). The
keys are the groups' numbers, from 0, eight bytes, big-endian.

The value of the key ``groups`` has, for every group, the number of records up to its end (i64), and
a CRC-32C (u32), which continues from that of the file's place. All is little-endian but the keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import google_crc32c
import numpy as np

from larder.cache.record import Array, Buffer
from larder.errors import DamageError

GROUP_BYTES: Final = 100_000
GROUPS_KEY: Final = b"groups"

_CHECKSUM_BYTES: Final = 4


def group_key(group: int) -> bytes:
    return group.to_bytes(8, "big")


def grouped(records: Iterable[Buffer], group_bytes: int) -> Iterator[list[Buffer]]:
    """The records of each group."""
    group: list[Buffer] = []
    size_bytes = 0
    for record in records:
        if group and len(record) >= group_bytes:
            yield group
            group, size_bytes = [], 0
        group.append(record)
        size_bytes += len(record)
        del record  # it may be large, and the next one is made now
        if size_bytes >= group_bytes:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group


def group_value(group: Sequence[Buffer], *, is_fixed: bool) -> Buffer:
    """The value of a group of a file whose records have one length, or have not."""
    if len(group) == 1:
        return group[0]
    bounds = np.cumsum([0, *map(len, group)]).astype("<u4")
    return b"".join([*group, b"" if is_fixed else bounds.tobytes()])


def group_bounds(value: memoryview, count: int, record_bytes: int | None) -> Sequence[int]:
    """Where the records of a group begin, and the last one ends, given how many there are, and how
    long those of the file are, unless they differ.
    """
    if record_bytes is not None:
        return range(0, (count + 1) * record_bytes, record_bytes)
    if count == 1:
        return 0, len(value)
    table = len(value) - (count + 1) * 4
    if table < 0:
        raise DamageError("damage.record", "the value is too short for its records")
    return value[table:].cast("I")  # little-endian, as LMDB's file is


def groups_value(ends: Sequence[int], place: str) -> bytes:
    """The value of `GROUPS_KEY`."""
    table = np.array(ends, "<i8").tobytes()
    return table + _checksum(table, place)


def group_ends(value: Buffer, place: str) -> Array:
    """What `groups_value` was made of."""
    table = np.frombuffer(value, np.uint8)[:-_CHECKSUM_BYTES]
    if value[len(table) :] != _checksum(table, place) or len(table) % 8:
        raise DamageError("damage.record", "the numbers of records of the groups are damaged")
    return table.copy().view("<i8")


def _checksum(table: bytes | Array, place: str) -> bytes:
    crc: int = google_crc32c.extend(google_crc32c.value(place.encode()), table)
    return crc.to_bytes(_CHECKSUM_BYTES, "little")
