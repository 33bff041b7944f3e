"""Groups: the values in a cache file's LMDB, each with several consecutive records.

LMDB stores a value of more than half a page in its own pages, and leaves the rest of the last page
empty. So a group ends when its consecutive records have 100,000 bytes or more; a record of this
size is a group alone. In a file whose records differ in length, a group of several records ends
with the place in the value of each record, and of the end of the last (u32). The keys are the
groups' numbers, from 0, eight bytes, big-endian.

The value of the key ``groups`` has the number of records up to each group's end (i64). A CRC-32C
(u32) follows, continued from the CRC-32C of the file's place. All numbers except the keys are
little-endian.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import google_crc32c
import numpy as np

from larder.cache.cache_record import Array, Buffer, RecordPlaces, damage, gathered
from larder.errors import DamageError

GROUP_BYTES: Final = 100_000
GROUPS_KEY: Final = b"groups"

_CHECKSUM_BYTES: Final = 4
_OUTSIDE: Final = "the record is not in its group"

_LookUp = Callable[[int, int], tuple[int, int]]


def group_key(group: int) -> bytes:
    return group.to_bytes(8, "big")


def grouped(records: Iterable[Buffer], group_bytes: int) -> Iterator[list[Buffer]]:
    group: list[Buffer] = []
    size_bytes = 0
    for record in records:
        if group and len(record) >= group_bytes:
            yield group
            group, size_bytes = [], 0
        group.append(record)
        size_bytes += len(record)
        del record  # it may be large, and the next record is made now
        if size_bytes >= group_bytes:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group


def group_value(group: Sequence[Buffer], *, is_fixed: bool) -> Buffer:
    """Return the value of a group; ``is_fixed``: all records of the file have one length."""
    if len(group) == 1:
        return group[0]
    bounds = np.cumsum([0, *map(len, group)]).astype("<u4")
    return b"".join([*group, b"" if is_fixed else bounds.tobytes()])


def groups_value(ends: Sequence[int], place: str) -> bytes:
    """Return the value of `GROUPS_KEY`."""
    table = np.array(ends, "<i8").tobytes()
    return table + _checksum(table, place)


def group_ends(value: Buffer, place: str) -> Array:
    """Return the ``ends`` of `groups_value`, after checking the checksum."""
    table = np.frombuffer(value, np.uint8)[:-_CHECKSUM_BYTES]
    if value[len(table) :] == _checksum(table, place) and len(table) % 8 == 0:
        ends = table.copy().view("<i8")
        if (ends == np.maximum.accumulate(np.maximum(ends, 0))).all():
            return ends
    raise DamageError("damage.record", "the numbers of records of the groups are damaged")


class Groups:
    """A finder of a file's records in memory, for many threads.

    ``look_up`` returns the place and the length of a group's value; it gets the number of a record
    for errors. ``record_bytes`` is None if lengths differ.
    """

    def __init__(
        self, ends: Array, memory: memoryview, look_up: _LookUp, record_bytes: int | None
    ) -> None:
        self._ends = ends
        self._counts = np.diff(ends, prepend=0)
        self._firsts = ends - self._counts
        self._memory = memory
        self._look_up = look_up
        self._record_bytes = record_bytes
        # By group: the place of its value, or 0; the length of all its records; and the length of
        # each record, or 0 if lengths differ.
        self._known = np.zeros((3, len(ends)), np.int64)
        self._begins, self._lengths, self._sizes = self._known

    def places(self, numbers: Array) -> RecordPlaces:
        """Find records; raise ``damage.record`` if one is not in its group."""
        groups = np.searchsorted(self._ends, numbers, side="right")
        begins = self._begins[groups]
        if not begins.all():
            for group, number in zip(groups.tolist(), numbers.tolist(), strict=True):
                if not self._begins[group]:
                    self._note(group, number)
            begins = self._begins[groups]
        ranks, sizes = numbers - self._firsts[groups], self._sizes[groups]
        lengths = self._lengths[groups]
        starts = ranks * sizes
        stops = starts + sizes
        if not sizes.all():
            differ = np.flatnonzero(sizes == 0)
            at = (begins + lengths + 4 * ranks)[differ]
            starts[differ], stops[differ] = gathered(self._memory, at, 8).view("<u4").T
        places = RecordPlaces(self._memory, numbers, begins + starts, begins + stops)
        places.check((starts > stops) | (stops > lengths), _OUTSIDE)
        return places

    def record(self, number: int) -> memoryview:
        """Find one record, faster than with `places`."""
        group = int(self._ends.searchsorted(number, "right"))
        known = self._known[:, group]
        if not known[0]:
            self._note(group, number)
        begin, length, size = known.tolist()
        rank = number - int(self._firsts[group])
        start, stop = rank * size, (rank + 1) * size
        if not size:
            start, stop = np.ndarray(2, "<u4", self._memory, begin + length + 4 * rank).tolist()
        if not start <= stop <= length:
            raise damage(_OUTSIDE, number)
        return self._memory[begin + start : begin + stop]

    def _note(self, group: int, number: int) -> None:
        begin, length = self._look_up(group, number)
        count, size = int(self._counts[group]), self._record_bytes
        if begin < 0 or not 0 < length <= len(self._memory) - begin:
            raise damage("its group is not in the file", number)
        if size is None and count > 1:
            length -= (count + 1) * 4
            if length < 0:
                raise damage("the value is too short for its records", number)
            table = np.ndarray(count + 1, "<u4", self._memory, begin + length).tolist()
            size = table[1]
            if table != [*range(0, (count + 1) * size, size or 1)]:
                size = 0
        self._lengths[group] = length
        self._sizes[group] = length if size is None else size
        self._begins[group] = begin  # set last: other threads test it


def _checksum(table: bytes | Array, place: str) -> bytes:
    crc: int = google_crc32c.extend(google_crc32c.value(place.encode()), table)
    return crc.to_bytes(_CHECKSUM_BYTES, "little")
