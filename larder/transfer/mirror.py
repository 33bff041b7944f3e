"""Copying a batch of objects: many at once, every failure collected, memory bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from larder.errors import Failure, ObjectError
from larder.limits import ByteBudget, map_done
from larder.progress import Progress
from larder.store.base import ObjectInfo, Store
from larder.transfer.copy import Copy, copy_object

__all__ = ["WAKE_SECONDS", "copy_batch"]

WAKE_SECONDS = 1.0


def copy_batch(
    source: Store,
    target: Store,
    objects: Iterable[ObjectInfo],
    *,
    prefix: str,
    concurrency: int,
    budget: ByteBudget,
    progress: Progress,
    copied: Callable[[Copy], None],
    awake: Callable[[], None] = lambda: None,
    wake_seconds: float = WAKE_SECONDS,
) -> tuple[Failure, ...]:
    """Copy objects, several at a time.

    An object that cannot be copied is reported and the others go on.

    Args:
        source: Where they are read.
        target: Where they are written.
        objects: As they were listed.
        prefix: Put before each key at the target.
        concurrency: Objects under way at once.
        budget: Bytes in memory at once.
        progress: Reports progress of stage ``mirror``.
        copied: Told of every object that was copied and verified, by the thread that did so and
            before anything else: of those under way when the batch is stopped too.
        awake: Called by this thread whenever an object is done, and otherwise every
            ``wake_seconds``.
        wake_seconds: See there.

    Returns:
        The objects that could not be copied, ordered by key.

    Raises:
        StoreError: A store refuses everything; copies under way are waited for.
        RetryableError: A store went on failing.
        LarderError: What ``progress`` or ``awake`` raises.
    """

    def ready() -> None:
        progress.advance("mirror")  # raises if the batch was stopped while it waited for memory

    def attempt(info: ObjectInfo) -> Failure | None:
        try:
            done = copy_object(source, info, target, prefix + info.key, budget, ready)
        except ObjectError as error:
            return Failure.of(info.key, error)
        copied(done)
        progress.advance("mirror", objects=1, bytes=info.size_bytes)
        return None

    failures = []
    with ThreadPoolExecutor(concurrency, thread_name_prefix="copy") as pool:
        window = 4 * concurrency
        for failure in map_done(pool, attempt, objects, window=window, wake_seconds=wake_seconds):
            if failure is not None:
                failures.append(failure)
            awake()
    return tuple(sorted(failures, key=lambda failure: failure.key.encode(errors="surrogatepass")))
