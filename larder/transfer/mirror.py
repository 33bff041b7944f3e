"""Copying a batch of objects: many at once, every failure collected, memory bounded."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from larder.errors import Failure, ObjectError
from larder.limits import ByteBudget, map_ahead
from larder.progress import Progress
from larder.store.base import ObjectInfo, Store
from larder.transfer.copy import Copied, copy_object

__all__ = ["BatchOfCopies", "copy_batch"]


@dataclass(frozen=True, slots=True)
class BatchOfCopies:
    """What was copied and verified, in the order given, and what could not be."""

    copied: tuple[Copied, ...]
    failures: tuple[Failure, ...]

    @property
    def bytes(self) -> int:
        """Bytes copied."""
        return sum(row.source.size_bytes for row in self.copied)


def copy_batch(
    source: Store,
    target: Store,
    objects: Iterable[ObjectInfo],
    *,
    prefix: str,
    concurrency: int,
    budget: ByteBudget,
    progress: Progress,
) -> BatchOfCopies:
    """Copy objects, several at a time.

    An object that cannot be copied is reported and the others go on.

    Args:
        source: Where they are read.
        target: Where they are written.
        objects: As they were listed.
        prefix: Put before each key at the target.
        concurrency: Objects under way at once.
        budget: Bytes in memory at once.
        progress: Told of every object of stage ``mirror``.

    Raises:
        StoreError: A store refuses everything; copies under way are waited for.
        RetryableError: A store went on failing.
    """

    def attempt(info: ObjectInfo) -> Copied | Failure:
        try:
            copied = copy_object(source, info, target, prefix + info.key, budget)
        except ObjectError as error:
            return Failure.of(info.key, error)
        progress.advance("mirror", objects=1, bytes=info.size_bytes)
        return copied

    with ThreadPoolExecutor(concurrency, thread_name_prefix="copy") as pool:
        results = list(map_ahead(pool, attempt, objects, window=4 * concurrency))
    return BatchOfCopies(
        copied=tuple(result for result in results if isinstance(result, Copied)),
        failures=tuple(result for result in results if isinstance(result, Failure)),
    )
