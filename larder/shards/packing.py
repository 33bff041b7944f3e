"""Assignment of samples to shards: pure arithmetic on sizes.

Shards are filled in the order of the samples, up to a target size. So the position of a sample
depends only on the sizes before it in its split. Each shard takes one binary search in a file of
`running_totals`: memory does not grow with the number of samples. For a minimum number of shards,
some 27 targets are tried in almost no time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice, takewhile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from larder.disk import disk_errors
from larder.shards.formats.format_interface import ShardFormat
from larder.shards.model import ShardBatch, ShardPlan

_DIGITS = "0123456789"


Ends = npt.NDArray[np.int64]
"""Running totals of the samples of a split: shape (samples,), up to and including each sample."""


def plan_shards(
    ends: Mapping[str, Ends],
    target_bytes: int,
    dataset: str,
    shard_format: ShardFormat,
    *,
    targets: Mapping[str, int] | None = None,
    first_shards: Mapping[str, int] | None = None,
    samples_per_shard: int | None = None,
) -> Iterator[ShardPlan]:
    """Fill shards with samples, in order.

    A shard ends before the sample that would make it longer than ``target_bytes``. But a shard
    below 0.95 of the target takes the sample if the shard is then closer to the target. So if no
    sample exceeds a tenth of the target, all shards except the last of a split have 0.95 to 1.05 of
    the target. A split without samples gets no shard.

    Args:
        ends: Running totals of the samples' bytes by split, in the order of the rows.
        target_bytes: Total length that the files of a shard should have.
        dataset: The beginning of the shards' names.
        shard_format: The format of the shards.
        targets: Targets for some splits instead of ``target_bytes``; from `target_for`.
        first_shards: Number of the first shard by split, unless it is 0.
        samples_per_shard: Fill shards with this number of samples instead, of any size.
    """
    row = 0
    for split, of_split in ends.items():
        target = (targets or {}).get(split, target_bytes)
        stops = (
            _filled(of_split, target, shard_format.empty_bytes)
            if samples_per_shard is None
            else _counted_off(of_split, samples_per_shard)
        )
        first, count = (first_shards or {}).get(split, 0), 0
        if shard_format.counted:
            stops = iter(numbered := list(stops))
            count = first + len(numbered)
        start = before = 0
        for index, stop in enumerate(stops, first):
            name = shard_format.shard_name(f"{dataset}-{split}", index, count)
            after = int(of_split[stop - 1])
            size_bytes = shard_format.empty_bytes + after - before
            yield ShardPlan(split, index, name, row, stop - start, size_bytes)
            row, start, before = row + stop - start, stop, after


def batch_shards(
    plans: Iterable[ShardPlan], batch_bytes: int, *, batch_rows: int | None = None
) -> list[ShardBatch]:
    """Group neighbouring shards into batches of about ``batch_bytes``.

    Only a batch with a single shard exceeds ``batch_bytes`` or ``batch_rows``. A batch may contain
    shards of several splits, but its rows are contiguous: a new batch begins after shards that need
    not be built.
    """
    batches: list[ShardBatch] = []
    shards: list[ShardPlan] = []
    rows = total_bytes = 0
    for plan in plans:
        rows, total_bytes = rows + plan.rows, total_bytes + plan.bytes
        neighbours = bool(shards) and plan.first_row == shards[-1].first_row + shards[-1].rows
        fits = total_bytes <= batch_bytes and (batch_rows is None or rows <= batch_rows)
        if shards and not (neighbours and fits):
            batches.append(ShardBatch(tuple(shards)))
            shards, rows, total_bytes = [], plan.rows, plan.bytes
        shards.append(plan)
    if shards:
        batches.append(ShardBatch(tuple(shards)))
    return batches


def brace_patterns(names: Sequence[str]) -> tuple[str, ...]:
    """Return patterns that expand, in order, to the shards of a segment's split.

    Each has one numeric range, as shells and WebDataset expand them, such as
    ``digits-train-{000000..000003}.tar``, or is a plain name. Several are needed if a shard is
    missing because all its samples were left out. Names must be in the order of their numbers;
    names that differ in more than a number stay unchanged.
    """
    if len(names) < 2:
        return tuple(names)
    pairs = zip(names[0], names[-1], strict=False)
    same = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    head = same.rstrip(_DIGITS)
    tail = names[0].removeprefix(head).lstrip(_DIGITS)
    numbers = [name.removeprefix(head).removesuffix(tail) for name in names]
    if [f"{head}{number}{tail}" for number in numbers if number.isdecimal()] != [*names]:
        return tuple(names)
    ranges = [first if first == last else f"{{{first}..{last}}}" for first, last in _runs(numbers)]
    return tuple(f"{head}{each}{tail}" for each in ranges)


def _filled(ends: Ends, target_bytes: int, empty_bytes: int) -> Iterator[int]:
    """Yield the stop of each shard: the row after its last sample."""
    room = target_bytes - empty_bytes
    row = before = 0
    while row < len(ends):
        fitting = int(np.searchsorted(ends, before + room, side="right"))
        if row < fitting < len(ends):
            total = empty_bytes + int(ends[fitting - 1]) - before
            size = int(ends[fitting] - ends[fitting - 1])
            missing_bytes = target_bytes - total
            fitting += 20 * total < 19 * target_bytes and size < 2 * missing_bytes
        row = max(row + 1, fitting)
        before = int(ends[row - 1])
        yield row


def _counted_off(ends: Ends, rows: int) -> Iterator[int]:
    return (min(start + rows, len(ends)) for start in range(0, len(ends), rows))


def _runs(numbers: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield first and last number of each run of consecutive numbers with equally many digits."""
    for _, pairs in groupby(
        enumerate(numbers), key=lambda pair: (int(pair[1]) - pair[0], len(pair[1]))
    ):
        run = [number for _, number in pairs]
        yield run[0], run[-1]


def running_totals(
    sizes: Iterable[tuple[str, npt.NDArray[np.int64]]], path: Path
) -> dict[str, Ends]:
    """Write the running totals of each split to a file at ``path``, and map them.

    ``sizes`` are from `larder.shards.sizes.split_sizes`; a split's pairs follow each other.
    """
    rows: dict[str, int] = {}
    before = 0
    with disk_errors(path), path.open("wb") as file:
        for split, part in sizes:
            if split not in rows:
                rows[split] = before = 0
            ends = np.cumsum(part) + before
            ends.tofile(file)
            rows[split] += len(ends)
            before = int(ends[-1]) if len(ends) else before
    total = sum(rows.values())
    every = np.memmap(path, np.int64, "r") if total else np.zeros(0, np.int64)
    stops = np.cumsum([*rows.values()], dtype=np.int64).tolist()
    return {
        split: every[stop - count : stop]
        for (split, count), stop in zip(rows.items(), stops, strict=True)
    }


def target_for(ends: Ends, target_bytes: int, count_min: int, empty_bytes: int) -> int:
    """Return a target of at most ``target_bytes`` that gives enough shards of similar sizes.

    Enough means ``count_min``, or one shard per sample if there are fewer samples. If
    ``target_bytes`` gives enough, it is returned, so that nothing is packed again. Otherwise the
    result gives the least sufficient number of shards, below twice ``count_min``: a smaller target
    never gives fewer shards. Of the targets with this number, the smallest is returned, because a
    larger one leaves less for the last shard, down to a single sample.
    """
    wanted = min(count_min, len(ends))

    def count(tried_bytes: int, most: int) -> int:
        """Count the shards that `plan_shards` would fill, up to ``most``."""
        return sum(1 for _ in islice(_filled(ends, tried_bytes, empty_bytes), most))

    if count(target_bytes, wanted) >= wanted:
        return target_bytes
    # The smallest target with too few shards, less a byte.
    largest = _smallest(target_bytes, lambda tried: count(tried, wanted) < wanted) - 1
    shards = count(largest, len(ends))
    return _smallest(largest, lambda tried: count(tried, shards + 1) <= shards)


def _smallest(most: int, holds: Callable[[int], bool]) -> int:
    """Return the smallest target from 1 to ``most`` for which the monotonic ``holds`` is true."""
    return bisect_left(range(1, most), True, key=holds) + 1
