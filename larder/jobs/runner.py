"""What runs the steps of a run: this process, or an orchestrator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, Protocol

from larder.budgets import batches_at_once
from larder.config.models.copying import CopyConfig, RunnerConfig
from larder.errors import ConfigError
from larder.jobs.crew import Crew, map_stopping
from larder.machine import usable_cores
from larder.progress import CancellableProgress, Progress, TimedProgress
from larder.store.interrupt import stopping_waits


def workers(runner: RunnerConfig, limits: CopyConfig) -> int:
    """Number of concurrent batches: ``runner.workers``, or one per core, as far as memory allows.

    See `larder.budgets.batches_at_once`.
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

    @property
    def flow_run(self) -> str:
        """Name and ID of the orchestrator's run; empty without one."""

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
    """Runs steps in this process, and batches in as many as it has cores (`larder.jobs.crew`).

    ``count`` batches run at most at once; ``stop`` stops the steps between two objects once it is
    set.
    """

    flow_run = ""

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
        progress = self.progress
        with stopping_waits(progress):
            return step(*arguments, progress=progress)

    def map(self, step: Callable[..., Any], job: Any, batches: Sequence[Any]) -> list[Any]:
        """The results of a step for each batch, in order; see `larder.jobs.crew.map_stopping`."""
        concurrent_batches = max(1, min(self._workers, len(batches)))

        def one(batch: Any, progress: Progress) -> Any:
            return crew.run(
                step, job, batch, progress=progress, concurrent_batches=concurrent_batches
            )

        with (
            closing(Crew.of(step, job, batches, self._workers)) as crew,
            ThreadPoolExecutor(concurrent_batches, thread_name_prefix="batch") as pool,
        ):
            return map_stopping(pool, one, batches, self.progress)
