"""All steps in one process, without an orchestrator."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from larder.limits import batches_at_once, map_done
from larder.pipeline.begin import begin
from larder.pipeline.build import build
from larder.pipeline.emit import check_configs, emit_configs, pending_configs
from larder.pipeline.job import Job, scratch
from larder.pipeline.plan import Plan, make_plan
from larder.pipeline.refusals import check_plan
from larder.pipeline.report import built_document, plan_document, reused_document
from larder.pipeline.settings import Settings
from larder.pipeline.source import SourceState, inspect_source, note_inputs
from larder.progress import CancellableProgress, Progress, StageTimes, TimedProgress

__all__ = ["InlineRunner", "carry_out", "checked_plan", "plan", "prepare", "reuse", "workers"]


def workers(settings: Settings) -> int:
    """Batches that run at once: ``runner.workers``, or one per core, as far as memory allows.

    See `larder.limits.batches_at_once`.
    """
    cluster = settings.cluster
    allowed = cluster.runner.workers or os.cpu_count() or 1
    return batches_at_once(allowed, cluster.copy_.memory_bytes)


class InlineRunner:
    """Runs steps in this process, batches in a few threads."""

    def __init__(self, count: int, progress: Progress) -> None:
        self.progress = progress
        self._workers = count

    def run(self, step: Callable[..., Any], job: Job, *arguments: Any) -> Any:
        """The result of one step."""
        return step(job, *arguments, progress=self.progress)

    def map(self, step: Callable[..., Any], job: Job, batches: Sequence[Any]) -> list[Any]:
        """The results of a step for each batch.

        The first error, or an interrupt, cancels those not yet begun; those under way stop after
        the objects that they are at, and are waited for.
        """
        concurrent_batches = max(1, min(self._workers, len(batches)))
        stop = threading.Event()

        results: list[Any] = [None] * len(batches)

        def one(place: int) -> None:
            progress = CancellableProgress(self.progress, stop)
            results[place] = step(
                job, batches[place], progress=progress, concurrent_batches=concurrent_batches
            )

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


def plan(settings: Settings, progress: TimedProgress) -> dict[str, Any]:
    """The document of what a run would do. Nothing is written but private temporary files.

    Raises:
        ConfigError: The run would be refused; see `larder.pipeline.refusals.check_plan` and
            `larder.pipeline.emit.pending_configs`.
        StoreError: The output directory cannot be read.
    """
    started = time.monotonic()
    with scratch() as folder:
        found = inspect_source(settings.dataset, settings.cluster, folder, progress)
        if found.published is not None:
            configs = pending_configs(settings, found.published)
            seconds = time.monotonic() - started
            return reused_document(settings, found, configs, seconds, progress.stages())
        return plan_document(settings, checked_plan(settings, found, folder, progress))


def checked_plan(settings: Settings, found: SourceState, folder: Path, progress: Progress) -> Plan:
    """Plan a run, and refuse what must not be done before any of it is done.

    Raises:
        ConfigError: See `larder.pipeline.refusals.check_plan` and
            `larder.pipeline.emit.check_configs`.
    """
    planned = make_plan(found, folder, progress)
    check_plan(planned)
    check_configs(settings, planned)
    return planned


def reuse(
    settings: Settings, found: SourceState, progress: TimedProgress, started: float
) -> dict[str, Any]:
    """Hand over a version that these inputs led to before; writes only what differs.

    Args:
        settings: The run.
        found: Its survey, with a published version.
        progress: Reports progress of every stage, those before this too.
        started: `time.monotonic` when the run began.
    """
    assert found.published is not None, "there is nothing to reuse"
    note_inputs(settings.dataset, settings.cluster, found)
    configs = emit_configs(settings, found.published, progress)
    seconds = time.monotonic() - started
    return reused_document(settings, found, configs, seconds, progress.stages())


def carry_out(
    settings: Settings,
    planned: Plan,
    job: Job,
    progress: TimedProgress,
    started: float,
    stop: threading.Event | None = None,
) -> dict[str, Any]:
    """Do what a plan says, in this process.

    Args:
        settings: The run.
        planned: What is to be done.
        job: The run that was begun with it.
        progress: Reports progress of every stage, those before this too.
        started: `time.monotonic` when the run began.
        stop: Stops the steps between two objects once it is set.

    Raises:
        FatalError: ``run.interrupted``: ``stop`` was set.
        LarderError: Whatever else kept it from being done; nothing is half published.
    """
    told = CancellableProgress(progress, stop or threading.Event())
    built = build(job, InlineRunner(workers(settings), told))
    configs = emit_configs(settings, built.version, told)
    seconds = time.monotonic() - started
    return built_document(settings, planned, built, configs, seconds, progress.stages())


def prepare(settings: Settings, progress: Progress | None = None) -> dict[str, Any]:
    """Prepare a dataset: every step, in this process.

    Returns:
        The JSON document of the run.

    Raises:
        LarderError: Whatever kept it from being done; nothing is half published.
    """
    started, told = time.monotonic(), StageTimes(progress)
    with scratch() as folder:
        found = inspect_source(settings.dataset, settings.cluster, folder, told)
        if found.published is not None:
            return reuse(settings, found, told, started)
        planned = checked_plan(settings, found, folder, told)
        job = begin(planned)
    return carry_out(settings, planned, job, told, started)
