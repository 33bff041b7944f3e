"""What runs the steps of a run: this process, or an orchestrator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from larder.bounds import batches_at_once, map_done
from larder.config.models import CopyConfig, RunnerConfig
from larder.errors import ConfigError
from larder.jobs.results import stops_others
from larder.machine import usable_cores
from larder.progress import CancellableProgress, Progress, TimedProgress


def workers(runner: RunnerConfig, limits: CopyConfig) -> int:
    """Number of concurrent batches: ``runner.workers``, or one per core, as far as memory allows.

    See `larder.bounds.batches_at_once`.
    """
    return batches_at_once(runner.workers or usable_cores(), limits.memory)


def only_here(runner: RunnerConfig) -> None:
    """``config.runner``: the batches are to run on Dask or Ray, which only a flow run reaches."""
    if runner.kind != "local":
        message = f"batches run on {runner.kind} in a flow run only"
        hint = "use python -m flows.NAME, or set runner.kind to local and runner.address to null"
        raise ConfigError("config.runner", message, hint=hint)


class Runner(Protocol):
    """Runs steps: inline, or as the tasks of an orchestrator.

    A step is a function of `larder.pipeline` that takes small values, and ``progress`` by name. A
    step over batches takes the job, a batch, and ``concurrent_batches``, the number of concurrent
    batches.
    """

    @property
    def progress(self) -> Progress:
        """Receives the progress of the stages."""

    @property
    def times(self) -> TimedProgress:
        """The times of the stages so far."""

    def claim(self, dataset: str) -> AbstractContextManager[None]:
        """Keeps others from preparing a dataset within a ``with`` block, if it can."""

    def run(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """The result of one step."""

    def map(self, step: Callable[..., Any], job: Any, batches: Sequence[Any]) -> list[Any]:
        """The results of a step for each batch, in order; runs several at once.

        If too much fails in a batch (`larder.jobs.results.stops_others`), no further one is
        started, and the results of those are None.
        """


Execute = Callable[[Runner], dict[str, Any]]
"""Executes what was planned; returns the JSON document of the run."""

Start = Callable[[Execute], dict[str, Any]]
"""Chooses the runner with which what was planned is executed."""


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

    def claim(self, dataset: str) -> AbstractContextManager[None]:
        return nullcontext()

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
