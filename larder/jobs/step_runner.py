"""Runners of the steps of a run: this process, or an orchestrator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, Protocol

from larder.budgets import batches_at_once
from larder.config.models.copy_config import CopyConfig, RunnerConfig
from larder.errors import ConfigError
from larder.jobs.crew import Crew, map_stopping
from larder.machine import usable_cores
from larder.progress import CancellableProgress, Progress, TimedProgress
from larder.store.interrupt import stopping_waits


def runner_batches(runner: RunnerConfig, limits: CopyConfig) -> int:
    """Return ``runner.workers``, or one per core; fewer if memory is short."""
    return batches_at_once(runner.workers or usable_cores(), limits.memory)


def only_here(runner: RunnerConfig) -> None:
    """Refuse Dask and Ray, which only a flow run reaches (``config.runner``)."""
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
        """Keep other runs from preparing a dataset within a ``with`` block, if possible."""

    def run(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Run one step and return its result."""

    def map(self, step: Callable[..., Any], job: Any, batches: Sequence[Any]) -> list[Any]:
        """Run a step for each batch, several at once; returns the results in order.

        If too much fails in a batch (`larder.jobs.results.stops_others`), no further batch is
        started; batches that were not started have None as result.
        """


Execute = Callable[[Runner], dict[str, Any]]
"""A function that executes a plan with a runner; returns the JSON document of the run."""

Start = Callable[[Execute], dict[str, Any]]
"""A function that chooses the runner for executing a plan."""


class InlineRunner:
    """Runs steps in this process, and batches in several if that saves time (`larder.jobs.crew`).

    At most ``count`` batches run at once, in at most ``count`` processes. Setting ``stop`` stops
    the steps between two objects.
    """

    flow_run = ""

    def __init__(
        self, count: int, progress: TimedProgress, stop: threading.Event | None = None
    ) -> None:
        self.times = progress
        self._count = count
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
        """Run a step for each batch; see `larder.jobs.crew.map_stopping`."""
        concurrent_batches = max(1, min(self._count, len(batches)))

        def one(batch: Any, progress: Progress) -> Any:
            return crew.run(
                step, job, batch, progress=progress, concurrent_batches=concurrent_batches
            )

        with (
            closing(Crew.of(step, job, batches, self._count)) as crew,
            ThreadPoolExecutor(concurrent_batches, thread_name_prefix="batch") as pool,
        ):
            return map_stopping(pool, one, batches, self.progress)
