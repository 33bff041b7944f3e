"""The rows of segments that a version omits: sorted ranges, in version.json or in a .npy file.

A version is a list of segments, each less some of its samples. The samples of a split of a segment
are numbered from 0, in the order of its shards and of its caches' records. So the same ranges apply
to indexes, shards and caches. Reading them needs only numpy.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from larder.errors import DamageError
from larder.forking import cached_property
from larder.manifest.digest import sha256_hex
from larder.manifest.sealed import MAKE_AGAIN
from larder.store import object_url
from larder.store.base import Store
from larder.store.own_files import once_more
from larder.versions import layout
from larder.versions.arrays import read_array
from larder.versions.documents import OmittedRows, VersionDocument

MAX_INLINE_RANGES = 1_000
"""Maximum number of ranges in version.json itself."""

_BLOCK = 1 << 20

Numbers = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]

Place = tuple[str, str]
"""ID of a segment, and a split."""


@dataclass(frozen=True, eq=False)
class Omitted:
    """Rows of one split of a segment, as ranges: int64 of shape (ranges, 2), start and stop.

    The ranges are sorted and disjoint, and do not touch.
    """

    ranges: Numbers

    @classmethod
    def of_mask(cls, mask: _Flags) -> Omitted:
        edges = []
        before = False
        for start in range(0, len(mask), _BLOCK):  # comparing the whole mask at once would copy it
            block = mask[start : start + _BLOCK]
            edges.append(start + np.flatnonzero(block != np.append(before, block[:-1])))
            before = bool(block[-1])
        edges.append(np.array([len(mask)] if before else [], np.int64))
        return cls(np.concatenate(edges).astype(np.int64).reshape(-1, 2))

    @classmethod
    def of_ranges(cls, ranges: Numbers, first_row: int, rows: int) -> Omitted:
        """Clip ranges of a segment's rows to some rows, and count from the first of these."""
        inside = np.clip(ranges - first_row, 0, rows)
        return cls(inside[inside[:, 0] < inside[:, 1]])

    @classmethod
    def none(cls) -> Omitted:
        return cls(np.zeros((0, 2), np.int64))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Omitted) and np.array_equal(self.ranges, other.ranges)

    __hash__ = None  # type: ignore[assignment]

    @property
    def count(self) -> int:
        return int((self.ranges[:, 1] - self.ranges[:, 0]).sum())

    def within(self, first_row: int, rows: int) -> Omitted:
        """Return the omitted rows among some consecutive rows, counted from the first of these."""
        first = np.searchsorted(self.ranges[:, 1], first_row, side="right")
        last = np.searchsorted(self.ranges[:, 0], first_row + rows, side="left")
        return Omitted.of_ranges(self.ranges[first:last], first_row, rows)

    def mask(self, first_row: int, rows: int) -> _Flags:
        """Return whether each of some consecutive rows is omitted; shape (rows,)."""
        steps = np.zeros(rows + 1, np.int8)
        near = self.within(first_row, rows).ranges
        np.add.at(steps, near[:, 0], 1)
        np.add.at(steps, near[:, 1], -1)
        flags: _Flags = np.cumsum(steps[:-1]).astype(np.bool_)
        return flags

    def rows_of(self, numbers: npt.ArrayLike) -> Numbers:
        """Return the rows of samples, given their numbers among those not omitted."""
        before, after = self._cut
        wanted = np.asarray(numbers, np.int64)
        rows: Numbers = wanted + before[np.searchsorted(after, wanted, side="right")]
        return rows

    @cached_property
    def _cut(self) -> tuple[Numbers, Numbers]:
        """Count the omitted rows before each range; number the next sample, as in `rows_of`."""
        starts, stops = self.ranges[:, 0], self.ranges[:, 1]
        before = np.concatenate(([0], np.cumsum(stops - starts)))
        return before, stops - before[1:]


def encode_omitted(
    omitted: Mapping[Place, Omitted],
) -> tuple[dict[Place, OmittedRows], bytes | None]:
    """Return the omitted rows of a version in the order of its segments, without empty places.

    If the ranges are too many for version.json, the second value is their .npy file.
    """
    by_place = {place: rows for place, rows in omitted.items() if rows.count}
    lengths = [len(rows.ranges) for rows in by_place.values()]
    if sum(lengths) <= MAX_INLINE_RANGES:
        return {
            place: OmittedRows(rows.count, tuple((a, b) for a, b in rows.ranges.tolist()))
            for place, rows in by_place.items()
        }, None
    stops = np.cumsum(lengths).tolist()
    encoded = {
        place: OmittedRows(rows.count, first=stop - length, stop=stop)
        for (place, rows), length, stop in zip(by_place.items(), lengths, stops, strict=True)
    }
    file = io.BytesIO()
    ranges = np.concatenate([rows.ranges for rows in by_place.values()])
    np.save(file, ranges.astype("<i8"), allow_pickle=False)
    return encoded, file.getvalue()


def read_omitted(store: Store, version: VersionDocument) -> dict[Place, Omitted]:
    """Return the rows that a version omits; places without any are left out."""
    file: Numbers | None = None
    by_place: dict[Place, Omitted] = {}
    for use in version.segments:
        for split, rows in use.omitted.items():
            if rows.ranges:
                ranges = np.array(rows.ranges, np.int64)
            else:
                if file is None:
                    file = once_more(partial(_read_file, store, version))
                ranges = file[rows.first : rows.stop]
            if len(ranges) != (len(rows.ranges) or rows.stop - rows.first) or not _valid(
                ranges, rows
            ):
                where = object_url(store.url, layout.version_key(version.id))
                raise _damage(f"invalid ranges of omitted rows in split {split}", where)
            by_place[use.id, split] = Omitted(ranges)
    return by_place


def _read_file(store: Store, version: VersionDocument) -> Numbers:
    file = version.file("omitted")
    data = bytes(store.get(file.path))
    where = object_url(store.url, file.path)
    if sha256_hex(data) != file.sha256:
        message = "the bytes do not match the digest"
        raise DamageError("damage.digest", message, where=where, hint=MAKE_AGAIN)
    try:
        ranges = read_array(data)
    except ValueError as error:
        raise _damage(str(error), where) from None
    if ranges.dtype != "<i8" or ranges.shape[1:] != (2,):
        raise _damage("not an array of ranges", where)
    return ranges.astype(np.int64)


def _valid(ranges: Numbers, rows: OmittedRows) -> bool:
    """Return whether ranges are sorted, disjoint and apart, with the expected number of rows."""
    edges = ranges.ravel()
    rising = bool(np.all(edges[1:] > edges[:-1]))
    return rising and len(edges) > 0 and edges[0] >= 0 and Omitted(ranges).count == rows.count


def _damage(message: str, where: str) -> DamageError:
    return DamageError("damage.manifest", message, where=where, hint=MAKE_AGAIN)
