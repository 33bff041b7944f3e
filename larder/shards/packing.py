"""Which sample goes into which shard: pure arithmetic on sizes.

Shards are filled in the order of the samples, up to a target size, so that where a sample falls
depends on the sizes before it in its split and on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from larder.shards.formats.base import ShardFormat
from larder.shards.model import ShardBatch, ShardPlan

__all__ = ["batch_shards", "brace_pattern", "plan_shards"]

_DIGITS = "0123456789"


def plan_shards(
    sizes: Iterable[tuple[str, Iterable[int]]],
    target_bytes: int,
    dataset: str,
    shard_format: ShardFormat,
    *,
    targets: Mapping[str, int] | None = None,
) -> Iterator[ShardPlan]:
    """Fill shards greedily with samples, in order.

    No shard is longer than ``target_bytes``, unless it holds one sample that alone is. A split
    without samples gets no shard.

    Args:
        sizes: Pairs of a split and the bytes that its samples take in a shard, one split after
            the other; a split may come in several pairs. `larder.shards.sizes` makes them.
        target_bytes: Length that a shard should not pass, bytes, with all of its files.
        dataset: What the shards' names begin with.
        shard_format: Their format.
        targets: Instead of ``target_bytes``, for splits with a target of their own; see
            `larder.shards.totals.target_for`.

    Yields:
        The shards, each as soon as it is full, so that no size is held for longer; if names
        contain the number of shards, as soon as all shards of the split are.
    """
    row = 0
    for split, group in groupby(sizes, key=lambda pair: pair[0]):
        all_sizes = (size for _, part in group for size in part)
        target = (targets or {}).get(split, target_bytes)
        filled: Iterable[tuple[int, int]] = _fill(all_sizes, target, shard_format.empty_bytes)
        count = 0
        if shard_format.counted:
            filled = list(filled)
            count = len(filled)
        for index, (rows, total_bytes) in enumerate(filled):
            name = shard_format.shard_name(f"{dataset}-{split}", index, count)
            yield ShardPlan(split, index, name, row, rows, total_bytes)
            row += rows


def batch_shards(
    plans: Iterable[ShardPlan], batch_bytes: int, *, batch_rows: int | None = None
) -> list[ShardBatch]:
    """Group neighbouring shards into batches of about ``batch_bytes``.

    No batch is longer, or has more than ``batch_rows`` samples, unless it holds one shard that
    alone is or has. A batch may hold shards of more
    than one split, and its rows are contiguous: where shards between two others are not to be
    made, a new batch begins.
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


def brace_pattern(names: Sequence[str]) -> str:
    """One pattern that expands to the shards of a split, as a shell and WebDataset expand it.

    ``digits-train-{000000..000003}.tar``; the plain name if there is but one; if numbers are
    missing, as where every sample of a shard was left out,
    ``digits-train-{{000000..000003},000005}.tar``.

    Args:
        names: One name or more, of one dataset and split, in the order of their numbers.
    """
    if len(names) == 1:
        return names[0]
    # Two names differ in the digits of their numbers and nowhere else.
    pairs = zip(names[0], names[-1], strict=False)
    differs = next(place for place, (one, other) in enumerate(pairs) if one != other)
    head = names[0][:differs].rstrip(_DIGITS)
    tail = names[0].removeprefix(head).lstrip(_DIGITS)
    numbers = [name.removeprefix(head).removesuffix(tail) for name in names]
    runs = [_braced(first, last) for first, last in _runs(numbers)]
    body = runs[0] if len(runs) == 1 else "{" + ",".join(runs) + "}"
    return f"{head}{body}{tail}"


def _fill(sizes: Iterable[int], target_bytes: int, empty_bytes: int) -> Iterator[tuple[int, int]]:
    """Samples and bytes of each shard."""
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
