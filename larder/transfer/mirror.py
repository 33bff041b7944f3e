"""Copies a batch of objects: concurrently, collecting all failures, in bounded memory."""

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

    If an object cannot be copied, it is reported and the others continue.

    Args:
        source: The store that they are read from.
        target: The store that they are written to.
        objects: The listed objects.
        prefix: Prefix of each key in the target.
        concurrency: Maximum number of objects in progress.
        budget: Maximum bytes in memory.
        progress: Reports progress of stage ``mirror``.
        copied: Called for every object that was copied and verified, in the thread that did so and
            before anything else; also for objects in progress when the batch is stopped.
        awake: Called by this thread whenever an object is done, and otherwise every
            ``wake_seconds``.
        wake_seconds: See there.

    Returns:
        The objects that could not be copied, ordered by key.

    Raises:
        StoreError: A store refuses access; copies in progress are waited for.
        RetryableError: A store kept failing.
        LarderError: Any error of ``progress`` or ``awake``.
    """

    def ready() -> None:
        progress.advance(
            "mirror"
        )  # raises an error if the batch was stopped while it waited for memory

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
