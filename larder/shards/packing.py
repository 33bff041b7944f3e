"""Assigns samples to shards: pure arithmetic on sizes.

Shards are filled in the order of the samples, up to a target size, so that the position of a sample
depends only on the sizes before it in its split.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from larder.shards.formats.base import ShardFormat
from larder.shards.model import ShardBatch, ShardPlan

__all__ = ["batch_shards", "brace_patterns", "plan_shards"]

_DIGITS = "0123456789"


def plan_shards(
    sizes: Iterable[tuple[str, Iterable[int]]],
    target_bytes: int,
    dataset: str,
    shard_format: ShardFormat,
    *,
    targets: Mapping[str, int] | None = None,
    first_shards: Mapping[str, int] | None = None,
) -> Iterator[ShardPlan]:
    """Fill shards greedily with samples, in order.

    No shard is longer than ``target_bytes``, unless its only sample is. A split without samples
    gets no shard.

    Args:
        sizes: Pairs of a split and the bytes that its samples take in a shard, one split after the
            other; a split may have several pairs. From `larder.shards.sizes`.
        target_bytes: Maximum total length of the files of a shard.
        dataset: The beginning of the shards' names.
        shard_format: Their format.
        targets: Replaces ``target_bytes`` for some splits; see
            `larder.shards.totals.target_for`.
        first_shards: By split, the number of the first shard, unless it is 0.

    Yields:
        The shards, each as soon as it is full, so that sizes are not kept; if names contain the
        number of shards of a split, as soon as all its shards are full.
    """
    row = 0
    for split, group in groupby(sizes, key=lambda pair: pair[0]):
        all_sizes = (size for _, part in group for size in part)
        target = (targets or {}).get(split, target_bytes)
        filled: Iterable[tuple[int, int]] = _fill(all_sizes, target, shard_format.empty_bytes)
        first, count = (first_shards or {}).get(split, 0), 0
        if shard_format.counted:
            filled = list(filled)
            count = first + len(filled)
        for index, (rows, total_bytes) in enumerate(filled, first):
            name = shard_format.shard_name(f"{dataset}-{split}", index, count)
            yield ShardPlan(split, index, name, row, rows, total_bytes)
            row += rows


def batch_shards(
    plans: Iterable[ShardPlan], batch_bytes: int, *, batch_rows: int | None = None
) -> list[ShardBatch]:
    """Group neighbouring shards into batches of about ``batch_bytes``.

    No batch is larger, or has more than ``batch_rows`` samples, unless its only shard is or has. A
    batch may contain shards of several splits, but its rows are contiguous: a new batch begins
    after shards that do not have to be built.
    """
    batches: list[ShardBatch] = []
    shards: list[ShardPlan] = []
    rows = total_bytes = 0
    for plan in plans:
        rows, total_bytes = rows + plan.rows, total_bytes + plan.bytes
        neighbours = bool(shards) and plan.first_row == shards[-1].first_row + shards[-1].rows
        fits = total_bytes <= batch_bytes and (batch_rows is None or rows <= batch_rows)
        if shards and not (neighbours and fits):
            batches.append(ShardBatch(len(batches), tuple(shards)))
            shards, rows, total_bytes = [], plan.rows, plan.bytes
        shards.append(plan)
    if shards:
        batches.append(ShardBatch(len(batches), tuple(shards)))
    return batches


def brace_patterns(names: Sequence[str]) -> tuple[str, ...]:
    """Patterns that a shell or WebDataset expands to the shards of a split of a segment, in order.

    ``digits-train-{000000..000003}.tar``: each has one numeric range, or is a plain name. There are
    several where numbers are missing, because every sample of a shard was left out.

    Args:
        names: Names of one segment and split, in the order of their numbers.
    """
    if len(names) < 2:
        return tuple(names)
    # Two names differ only in the digits of their numbers.
    pairs = zip(names[0], names[-1], strict=False)
    differs = next(place for place, (one, other) in enumerate(pairs) if one != other)
    head = names[0][:differs].rstrip(_DIGITS)
    tail = names[0].removeprefix(head).lstrip(_DIGITS)
    numbers = [name.removeprefix(head).removesuffix(tail) for name in names]
    return tuple(f"{head}{_braced(first, last)}{tail}" for first, last in _runs(numbers))


def _fill(sizes: Iterable[int], target_bytes: int, empty_bytes: int) -> Iterator[tuple[int, int]]:
    """Number of samples and bytes of each shard."""
    rows = 0
    total_bytes = empty_bytes
    for size in sizes:
        if rows and total_bytes + size > target_bytes:
            yield rows, total_bytes
            rows, total_bytes = 0, empty_bytes
        rows += 1
        total_bytes += size
    if rows:
        yield rows, total_bytes


def _runs(numbers: Iterable[str]) -> Iterator[tuple[str, str]]:
    """First and last of every run of consecutive numbers with the same number of digits."""
    for _, pairs in groupby(
        enumerate(numbers), key=lambda pair: (int(pair[1]) - pair[0], len(pair[1]))
    ):
        run = [number for _, number in pairs]
        yield run[0], run[-1]


def _braced(first: str, last: str) -> str:
    return first if first == last else f"{{{first}..{last}}}"
