"""All steps in one process, without an orchestrator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from larder.config.models import Copy, Runner
from larder.limits import batches_at_once, map_done
from larder.machine import usable_cores
from larder.pipeline.results import stops_others
from larder.progress import CancellableProgress, Progress, StageTimes, TimedProgress

if TYPE_CHECKING:
    from larder.pipeline.settings import Settings


def workers(settings: Settings) -> int:
    """Number of concurrent batches: ``runner.workers``, or one per core, as far as memory allows.

    See `larder.limits.batches_at_once`.
    """
    return workers_for(settings.cluster.runner, settings.cluster.copy_)


def workers_for(runner: Runner, limits: Copy) -> int:
    return batches_at_once(runner.workers or usable_cores(), limits.memory)


class InlineRunner:
    """Runs steps in this process, batches in a few threads.

    ``count`` batches run at most at once; ``stop`` stops the steps between two objects once it is
    set.
    """

    def __init__(
        self, count: int, progress: TimedProgress, stop: threading.Event | None = None
    ) -> None:
        self.times = progress
        self._workers = count
        self._stop = stop or threading.Event()

    @property
    def progress(self) -> Progress:
        return CancellableProgress(self.times, self._stop)

    def run(self, step: Callable[..., Any], *arguments: Any) -> Any:
        return step(*arguments, progress=self.progress)

    def map(self, step: Callable[..., Any], job: Any, batches: Sequence[Any]) -> list[Any]:
        """The results of a step for each batch.

        The first error, or an interrupt, cancels batches that have not started; the others stop
        after their current objects, and are waited for. If too much failed in a batch, no further
        one is started, and the results of those are None.
        """
        concurrent_batches = max(1, min(self._workers, len(batches)))
        stop, enough = threading.Event(), threading.Event()

        results: list[Any] = [None] * len(batches)

        def one(place: int) -> None:
            if enough.is_set():
                return
            progress = CancellableProgress(self.progress, stop)
            results[place] = step(
                job, batches[place], progress=progress, concurrent_batches=concurrent_batches
            )
            if stops_others(results[place]):
                enough.set()

        with ThreadPoolExecutor(concurrent_batches, thread_name_prefix="batch") as pool:
            try:
                for _ in map_done(
                    pool, one, range(len(batches)), window=concurrent_batches, wake_seconds=60.0
                ):
                    pass
            except BaseException:
                stop.set()
                raise
        return results


def prepare(settings: Settings, progress: Progress | None = None) -> dict[str, Any]:
    """Prepare a dataset in this process; see `larder.pipeline.prepare.prepare`."""
    from larder.pipeline.prepare import prepare as compose  # a copy runs without it

    return compose(settings, InlineRunner(workers(settings), StageTimes(progress)))


def plan(settings: Settings, progress: Progress | None = None) -> dict[str, Any]:
    """The document of what `prepare` would do. Writes only private temporary files."""
    from larder.pipeline.prepare import prepare as compose

    runner = InlineRunner(workers(settings), StageTimes(progress))
    return compose(settings, runner, plan_only=True)
