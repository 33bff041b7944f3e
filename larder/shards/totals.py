"""Running totals of the sizes of all samples in a file, so that many shard sizes can be tried.

Trying a target takes as many steps as there are shards, each a binary search in the file, and about
27 targets are tried. So for a thousand shards the search takes almost no time compared with reading
the sizes once, and for 100,000, the maximum, it takes seconds. Memory does not grow with the number
of samples.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from larder.disk import disk_errors
from larder.shards.packing import stretches

_CHUNK = 65_536
_Totals = npt.NDArray[np.int64]


class RunningTotals:
    """The bytes that the samples of each split take in shards, up to and including each sample.

    The file has eight bytes for each sample.
    """

    def __init__(self, sizes: Iterable[tuple[str, Iterable[int]]], path: Path) -> None:
        rows: dict[str, int] = {}
        before = 0
        with disk_errors(path), path.open("wb") as file:
            for split, part in sizes:
                if split not in rows:
                    rows[split] = before = 0
                ends = np.cumsum(np.fromiter(part, np.int64)) + before
                ends.tofile(file)
                rows[split] += len(ends)
                before = int(ends[-1]) if len(ends) else before
        total = sum(rows.values())
        ends = np.memmap(path, np.int64, "r") if total else np.zeros(0, np.int64)
        starts = np.cumsum([0, *rows.values()]).tolist()
        self.of_split: Mapping[str, _Totals] = {
            split: ends[start : start + count]
            for (split, count), start in zip(rows.items(), starts, strict=False)
        }

    def sizes(self) -> Iterator[tuple[str, list[int]]]:
        for split, ends in self.of_split.items():
            for start in range(0, len(ends), _CHUNK):
                before = ends[start - 1] if start else 0
                yield split, np.diff(ends[start : start + _CHUNK], prepend=before).tolist()


def target_for(ends: _Totals, target_bytes: int, count_min: int, empty_bytes: int) -> int:
    """The target, at most ``target_bytes``, that gives a split enough shards of similar sizes.

    Enough means ``count_min``, or one per sample if there are fewer samples. If ``target_bytes``
    gives enough, it is returned, so that nothing is packed again. A smaller target never gives
    fewer shards, so no target gives a number between ``count_min`` and that of the largest
    sufficient target. That number is chosen; it is less than twice ``count_min``, because a shard
    that is one byte too long becomes two. Of the targets that give it, the smallest is returned: a
    larger one would leave less for the last shard, down to a single sample. ``ends`` are the
    running totals of the samples' sizes.
    """
    wanted = min(count_min, len(ends))

    def count(tried_bytes: int, most: int) -> int:
        return count_shards(ends, tried_bytes, most, empty_bytes)

    if count(target_bytes, wanted) >= wanted:
        return target_bytes
    # The smallest target with too few shards, less a byte.
    largest = _smallest(target_bytes, lambda tried: count(tried, wanted) < wanted) - 1
    shards = count(largest, len(ends))
    return _smallest(largest, lambda tried: count(tried, shards + 1) <= shards)


def _smallest(most: int, holds: Callable[[int], bool]) -> int:
    """The smallest target from 1 to ``most`` for which ``holds``, given that it is monotonic."""
    return bisect_left(range(1, most), True, key=holds) + 1


def count_shards(ends: _Totals, target_bytes: int, most: int, empty_bytes: int) -> int:
    """Number of shards that `larder.shards.packing.plan_shards` fills; counted up to ``most``."""
    room = target_bytes - empty_bytes
    row = count = filled = 0
    while row < len(ends) and count < most:
        fitting = int(np.searchsorted(ends, filled + room, side="right"))
        if row < fitting < len(ends):
            total = empty_bytes + int(ends[fitting - 1]) - filled
            size = int(ends[fitting] - ends[fitting - 1])
            fitting += stretches(total, size, target_bytes)
        row = max(row + 1, fitting)
        filled = int(ends[row - 1])
        count += 1
    return count
